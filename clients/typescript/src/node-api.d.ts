/** The little that is used of Node, so that its types are no dependency. */

declare module "node:http" {
  import type { Socket } from "node:net";

  export interface IncomingMessage {
    readonly statusCode: number;
    readonly statusMessage: string;
    readonly headers: Record<string, string | undefined>;
    resume(): void;
  }
  export interface ClientRequest {
    on(event: "upgrade", listener: (response: IncomingMessage, socket: Socket, head: Buffer) => void): this;
    on(event: "response", listener: (response: IncomingMessage) => void): this;
    on(event: "error", listener: (error: Error & { code?: string }) => void): this;
    end(): void;
    destroy(): void;
  }
  export interface Buffer extends Uint8Array<ArrayBuffer> {
    readUInt16BE(offset: number): number;
    readUInt32BE(offset: number): number;
    toString(encoding?: "utf8" | "base64", start?: number, end?: number): string;
    subarray(start?: number, end?: number): Buffer;
  }
  export function request(url: URL, options: { headers: Record<string, string> }): ClientRequest;
}

declare module "node:https" {
  export { request } from "node:http";
}

declare module "node:net" {
  import type { Buffer } from "node:http";

  export interface Socket {
    readonly writableLength: number;
    on(event: "data", listener: (chunk: Buffer) => void): this;
    on(event: "close", listener: () => void): this;
    on(event: "error", listener: (error: Error) => void): this;
    setNoDelay(): void;
    setTimeout(ms: number): void;
    cork(): void;
    uncork(): void;
    write(data: Uint8Array): void;
    end(): void;
    destroy(): void;
  }
}

declare module "node:buffer" {
  import type { Buffer as NodeBuffer } from "node:http";

  export const Buffer: {
    alloc(size: number): NodeBuffer;
  };
  export function isUtf8(data: Uint8Array): boolean;
}

declare module "node:crypto" {
  import type { Buffer } from "node:http";

  export function randomBytes(size: number): Buffer;
  export function createHash(name: "sha1"): { update(text: string): { digest(encoding: "base64"): string } };
}

declare module "node:timers" {
  export function setImmediate(callback: () => void): void;
}
