import { ABNORMAL, CloseCode, mayReconnect, NORMAL } from "./close-codes.js";
import type { RefusedError } from "./errors.js";
import { ConnectError, JoinRefusedError } from "./errors.js";
import { refusal } from "./refusals.js";
import type { WebSocketConstructor, WebSocketLike } from "./websocket.js";
import type { Message, Position } from "./wire.js";
import { integer, parse, string } from "./wire.js";

/** A token, or a function that is called for every connection, for tokens that change. */
export type Token = string | (() => string | Promise<string>);

/** How to join, as often as a connection is needed. */
export interface JoinOptions {
  readonly url: string;
  readonly space: string | undefined;
  readonly participant: string | undefined;
  readonly token: Token | undefined;
  readonly WebSocket: WebSocketConstructor;
  /** In milliseconds, for connecting and joining together. */
  readonly timeout: number;
}

/** Gets what a connection receives after its welcome. */
export interface Receiver {
  message(data: string | Uint8Array): void;
  lost(connection: Connection, code: number, reason: string): void;
}

/** How long a close waits for the gateway's answer. */
const CLOSE_MS = 2000;
/** What a subprotocol may contain. Any other token goes into the join message. */
const SUBPROTOCOL = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** A WebSocket of a participant that was welcomed. */
export class Connection {
  readonly #socket: WebSocketLike;
  readonly #closed: Promise<void>;
  #isClosed!: () => void;
  #receiver: Receiver | undefined;

  constructor(socket: WebSocketLike, receiver: Receiver) {
    this.#socket = socket;
    this.#receiver = receiver;
    this.#closed = new Promise((resolve) => (this.#isClosed = resolve));
    socket.onmessage = ({ data }: { data: unknown }) => {
      try {
        if (typeof data === "string") this.#receiver?.message(data);
        else if (data instanceof ArrayBuffer) this.#receiver?.message(new Uint8Array(data));
      } catch (error) {
        // JSON that is nested too deeply exhausts the stack, for example. No gateway may end our program by that.
        this.abandon(`a message from the gateway could not be handled: ${String(error)}`);
      }
    };
    socket.onclose = ({ code, reason }: CloseEventLike) => this.#end(code, reason);
    socket.onerror = (event: ErrorEventLike) => this.#end(ABNORMAL, string(event.message) ?? "");
  }

  /** How many bytes wait to be sent. */
  get buffered(): number {
    return this.#socket.bufferedAmount;
  }

  send(message: string | Uint8Array<ArrayBuffer>): void {
    this.#socket.send(message);
  }

  /** Gives up a connection from which nothing comes, without waiting for a close that would not come either. */
  abandon(reason: string): void {
    this.#end(ABNORMAL, reason);
    this.#socket.close();
  }

  /** Closes in order, and waits a moment for the gateway to do the same. */
  async close(): Promise<void> {
    this.#receiver = undefined;
    this.#socket.close(NORMAL);
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([this.#closed, new Promise((resolve) => (timer = setTimeout(resolve, CLOSE_MS)))]);
    clearTimeout(timer);
  }

  #end(code: number, reason: string): void {
    this.#isClosed();
    const receiver = this.#receiver;
    this.#receiver = undefined;
    receiver?.lost(this, code, reason);
  }
}

interface CloseEventLike {
  readonly code: number;
  readonly reason: string;
}

/** Browsers do not say what the error was. A close should follow it, but not every WebSocket does that. */
interface ErrorEventLike {
  readonly message?: unknown;
}

/**
 * Whether to reconnect after a close with this code. Not after a replacement, although the gateway would allow it: two
 * programs that share one name would take the place from each other for ever.
 */
export function isRetried(code: number): boolean {
  return mayReconnect(code) && code !== CloseCode.REPLACED_BY_RECONNECT;
}

/**
 * Connects, joins, and waits for the welcome. `welcomed` is called with it before anything else is read, and returns
 * the receiver of what follows. Rejects with {@link JoinRefusedError} where trying again would not help, and with
 * {@link ConnectError} where it might.
 */
export async function join(
  options: JoinOptions,
  resume: Position | undefined,
  welcomed: (welcome: Message, connect: (receiver: Receiver) => Connection) => void,
  signal: AbortSignal,
): Promise<void> {
  const token = typeof options.token === "function" ? await options.token() : options.token;
  const isOffered = token !== undefined && SUBPROTOCOL.test(token);
  const message = JSON.stringify({
    type: "join",
    participantId: options.participant,
    space: options.space,
    token: isOffered ? undefined : token,
    extensions: ["positions"],
    resume,
  });
  const socket = new options.WebSocket(options.url, [
    "mew.v0.4",
    ...(isOffered ? ["mew.join", `mew.token.${token}`] : []),
  ]);
  socket.binaryType = "arraybuffer";
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      let refused: RefusedError | undefined;
      timer = setTimeout(
        () => reject(new ConnectError(`no welcome came within ${options.timeout} ms`)),
        options.timeout,
      );
      signal.onabort = () => reject(new ConnectError("the space was closed meanwhile"));
      socket.onopen = () => socket.send(message);
      socket.onerror = (event: ErrorEventLike) => {
        const why = string(event.message);
        reject(new ConnectError(`cannot connect to ${shown(options.url)}${why ? `: ${why}` : ""}`));
      };
      socket.onmessage = ({ data }: { data: unknown }) => {
        const received = typeof data === "string" ? parse(data) : undefined;
        if (received?.kind === "system/error") refused = refusal(received.payload);
        if (received?.kind !== "system/welcome") return;
        if (integer(received.seq) === undefined || string(received.payload["epoch"]) === undefined) {
          reject(
            new JoinRefusedError("the gateway knows no positions: this client needs a mewstream gateway", "welcome"),
          );
          return;
        }
        welcomed(received, (receiver) => new Connection(socket, receiver));
        resolve();
      };
      socket.onclose = ({ code, reason }: CloseEventLike) => {
        const why = refused?.message || reason || `it closed the connection (${code})`;
        const text = `the gateway did not let us in: ${why}`;
        reject(isRetried(code) ? new ConnectError(text) : new JoinRefusedError(text, refused?.code ?? code));
      };
    });
  } catch (error) {
    socket.onopen = socket.onmessage = socket.onclose = null; // an error still needs somebody who hears it
    socket.close();
    throw error;
  } finally {
    clearTimeout(timer);
    signal.onabort = null;
  }
}

/**
 * The address of the gateway's WebSocket: `http` becomes `ws`, and the path is `/ws` where there is none.
 *
 * @throws {@link ConnectError} where it is no address, or holds a secret.
 */
export function websocketUrl(url: string): string {
  let address: URL;
  try {
    address = new URL(/^[a-z]+:\/\//i.test(url) ? url : `ws://${url}`);
  } catch {
    // It is not quoted, because nobody can tell what in it is a secret.
    throw new ConnectError("the address of the gateway is malformed: expected something like ws://127.0.0.1:8080");
  }
  if (address.username || address.password || address.search.includes("token=")) {
    throw new ConnectError("there is a secret in the address: give it as the option token, so that no log has it");
  }
  address.protocol = address.protocol.replace(/^http/, "ws");
  if (!/^wss?:$/.test(address.protocol)) {
    throw new ConnectError(`${address.protocol} is no protocol of a gateway: expected ws, wss, http or https`);
  }
  if (address.pathname === "/") address.pathname = "/ws";
  address.hash = "";
  return address.href;
}

/** An address of {@link websocketUrl} without its query, which might hold a secret. */
function shown(url: string): string {
  return url.replace(/\?.*/, "");
}
