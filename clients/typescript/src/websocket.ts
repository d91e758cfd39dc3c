/** What this package needs of a WebSocket: those of browsers and of the package `ws` have it. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}

/** A class of WebSockets, to be given to {@link connect} in place of the default one. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;
