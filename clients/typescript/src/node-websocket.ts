/**
 * A WebSocket client (RFC 6455) for Node: what this package needs of one, and no more. Node 20 has none of its own, and
 * that of later versions is slow and does not say why it could not connect.
 */

import { isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import type { Buffer as Bytes, IncomingMessage } from "node:http";
import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import type { Socket } from "node:net";
import { setImmediate } from "node:timers";

import { ABNORMAL } from "./close-codes.js";
import { notify } from "./emitter.js";
import { GrowingBuffer } from "./growing-buffer.js";
import type { WebSocketLike } from "./websocket.js";

const CONTINUATION = 0;
const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

const KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** A gateway sends far less: it takes messages of at most 64 MiB, and a welcome is smaller. */
const MAX_MESSAGE_BYTES = 128 << 20;
/** How long the end of a connection may take after a close. */
const CLOSE_MS = 2000;
/** Masks are random so that nobody can choose what is on the wire; drawing many at once is much faster. */
const MASKS = 4096;

const encoder = new TextEncoder();

export class NodeWebSocket implements WebSocketLike {
  binaryType = "arraybuffer";
  onopen: ((event: object) => void) | null = null;
  onmessage: ((event: { data: string | ArrayBuffer }) => void) | null = null;
  onerror: ((event: { message: string }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  #socket: Socket | undefined;
  #abort: () => void;
  #isClosing = false;
  #isClosed = false;
  /** The close that the server sent. */
  #close: { code: number; reason: string } | undefined;
  /** The beginning of a frame that is not complete. */
  readonly #unread = new GrowingBuffer();
  /** How many bytes are needed before there is anything to do. */
  #needed = 2;
  readonly #fragments = new GrowingBuffer();
  #fragmentsOpcode = 0;
  #isCorked = false;
  #closeTimer: ReturnType<typeof setTimeout> | undefined;
  #masks = new Uint8Array();
  #masksUsed = 0;

  constructor(url: string, protocols: string[]) {
    const target = new URL(url);
    const isSecure = target.protocol === "wss:";
    target.protocol = isSecure ? "https:" : "http:";
    const key = randomBytes(16).toString("base64");
    const request = (isSecure ? requestHttps : requestHttp)(target, {
      headers: {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": protocols.join(", "),
      },
    });
    this.#abort = () => request.destroy();
    request.on("error", (error) => this.#fail(error.message || error.code || "it failed"));
    request.on("response", (response) => {
      response.resume();
      this.#fail(`HTTP ${response.statusCode} ${response.statusMessage}`);
    });
    request.on("upgrade", (response, socket, head) => this.#upgraded(response, socket, head, key, protocols));
    request.end();
  }

  get bufferedAmount(): number {
    return this.#socket?.writableLength ?? 0;
  }

  send(data: string | Uint8Array): void {
    if (typeof data === "string") this.#write(TEXT, encoder.encode(data));
    else this.#write(BINARY, data);
  }

  close(code?: number): void {
    if (this.#isClosing) return;
    if (!this.#socket) {
      this.#fail("it was closed before it was open");
      return;
    }
    this.#write(CLOSE, code === undefined ? new Uint8Array() : new Uint8Array([code >> 8, code & 0xff]));
    this.#closing();
  }

  #upgraded(response: IncomingMessage, socket: Socket, head: Bytes, key: string, protocols: string[]): void {
    const accept = createHash("sha1")
      .update(key + KEY_SUFFIX)
      .digest("base64");
    const protocol = response.headers["sec-websocket-protocol"];
    this.#abort = () => socket.destroy();
    socket.on("error", () => undefined); // a close follows
    if (
      response.headers["sec-websocket-accept"] !== accept ||
      (protocol !== undefined && !protocols.includes(protocol))
    ) {
      this.#fail("the answer is not that of a WebSocket");
      return;
    }
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    this.#socket = socket;
    socket.setNoDelay();
    socket.setTimeout(0);
    socket.on("close", () =>
      this.#end(this.#close ?? { code: ABNORMAL, reason: "the connection ended without a close" }),
    );
    socket.on("data", (chunk) => this.#read(chunk));
    notify(this.onopen, {});
    if (head.length) this.#read(head);
  }

  // -- sending --------------------------------------------------------------------------------------

  #write(opcode: number, payload: Uint8Array): void {
    const socket = this.#socket;
    if (!socket || this.#isClosing) return;
    const { length } = payload;
    const start = length < 126 ? 6 : length < 0x10000 ? 8 : 14;
    const frame = new Uint8Array(start + length);
    frame[0] = 0x80 | opcode;
    if (length < 126) frame[1] = 0x80 | length;
    else {
      const view = new DataView(frame.buffer);
      frame[1] = 0x80 | (length < 0x10000 ? 126 : 127);
      if (length < 0x10000) view.setUint16(2, length);
      else view.setBigUint64(2, BigInt(length));
    }
    const mask = this.#mask();
    frame.set(mask, start - 4);
    for (let at = 0; at < length; at++) frame[start + at] = (payload[at] as number) ^ (mask[at & 3] as number);
    if (!this.#isCorked) {
      // What is sent in one turn of the event loop goes out together.
      this.#isCorked = true;
      socket.cork();
      setImmediate(() => {
        this.#isCorked = false;
        socket.uncork();
      });
    }
    socket.write(frame);
  }

  #mask(): Uint8Array {
    if (this.#masksUsed === this.#masks.length) {
      this.#masks = crypto.getRandomValues(new Uint8Array(4 * MASKS));
      this.#masksUsed = 0;
    }
    return this.#masks.subarray(this.#masksUsed, (this.#masksUsed += 4));
  }

  // -- receiving ------------------------------------------------------------------------------------

  #read(chunk: Bytes): void {
    let buffer = chunk;
    if (this.#unread.size) {
      this.#unread.append(chunk);
      if (this.#unread.size < this.#needed) return;
      buffer = this.#unread.take();
    }
    let at = 0;
    while (!this.#isClosed) {
      const end = this.#frame(buffer, at);
      if (end === undefined) break;
      at = end;
    }
    if (!this.#isClosed && at < buffer.length) this.#unread.append(buffer.subarray(at));
  }

  /** Handles the frame that begins at `at`. Returns where it ends; undefined where it is not complete. */
  #frame(buffer: Bytes, at: number): number | undefined {
    const available = buffer.length - at;
    this.#needed = 2;
    if (available < 2) return undefined;
    const first = buffer[at] as number;
    const second = buffer[at + 1] as number;
    const opcode = first & 0x0f;
    const isLast = (first & 0x80) !== 0;
    if ((first & 0x70) !== 0 || (second & 0x80) !== 0) return this.#broken("a frame with reserved bits, or masked");
    let length = second;
    let start = 2;
    if (length >= 126) {
      start = length === 126 ? 4 : 10;
      this.#needed = start;
      if (available < start) return undefined;
      length =
        start === 4 ? buffer.readUInt16BE(at + 2) : buffer.readUInt32BE(at + 2) * 2 ** 32 + buffer.readUInt32BE(at + 6);
    }
    if (opcode >= CLOSE && (length > 125 || !isLast)) return this.#broken("a control frame that is too long or cut");
    if (length + this.#fragments.size > MAX_MESSAGE_BYTES) return this.#broken("a message that is too large");
    this.#needed = start + length;
    if (available < this.#needed) return undefined;
    const end = at + this.#needed;
    this.#needed = 2;
    if (opcode === TEXT && isLast && !this.#fragmentsOpcode) this.#text(buffer, at + start, end);
    else this.#take(opcode, isLast, buffer.subarray(at + start, end));
    return end;
  }

  #take(opcode: number, isLast: boolean, payload: Bytes): void {
    switch (opcode) {
      case TEXT:
      case BINARY:
      case CONTINUATION:
        this.#fragment(opcode, isLast, payload);
        break;
      case PING:
        this.#write(PONG, payload);
        break;
      case PONG:
        break;
      case CLOSE:
        this.#closedByServer(payload);
        break;
      default:
        this.#broken("a frame of an unknown type");
    }
  }

  #fragment(opcode: number, isLast: boolean, payload: Bytes): void {
    const isContinued = this.#fragmentsOpcode !== 0;
    if ((opcode === CONTINUATION) !== isContinued) this.#broken("fragments out of order");
    else if (isLast && !isContinued) this.#message(opcode, payload);
    else {
      this.#fragments.append(payload);
      if (!isContinued) this.#fragmentsOpcode = opcode;
      if (!isLast) return;
      const type = this.#fragmentsOpcode;
      this.#fragmentsOpcode = 0;
      this.#message(type, this.#fragments.take());
    }
  }

  #message(opcode: number, payload: Bytes): void {
    if (opcode === TEXT) this.#text(payload, 0, payload.length);
    else if (!this.#isClosing) {
      const { buffer, byteOffset, byteLength } = payload;
      notify(this.onmessage, { data: buffer.slice(byteOffset, byteOffset + byteLength) });
    }
  }

  #text(buffer: Bytes, start: number, end: number): void {
    if (this.#isClosing) return;
    const data = buffer.toString("utf8", start, end);
    // What is not UTF-8 becomes a replacement character, which is rare enough to look twice.
    if (data.includes("\ufffd") && !isUtf8(buffer.subarray(start, end))) this.#broken("text that is not UTF-8");
    else notify(this.onmessage, { data });
  }

  // -- the end --------------------------------------------------------------------------------------

  #closedByServer(payload: Bytes): void {
    const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
    this.#close = { code, reason: payload.subarray(2).toString("utf8") };
    this.#write(CLOSE, payload.subarray(0, 2));
    this.#closing();
    this.#socket?.end();
  }

  /** Nothing more is sent. The server ends the connection, or we do. */
  #closing(): void {
    this.#isClosing = true;
    this.#closeTimer ??= setTimeout(() => this.#abort(), CLOSE_MS);
  }

  /** The server has sent something that no server may send. */
  #broken(what: string): undefined {
    this.#fail(`the gateway sent ${what}`);
    return undefined;
  }

  #fail(reason: string): void {
    if (this.#isClosed) return;
    notify(this.onerror, { message: reason });
    this.#end({ code: ABNORMAL, reason });
    this.#abort();
  }

  #end(close: { code: number; reason: string }): void {
    if (this.#isClosed) return;
    this.#isClosing = this.#isClosed = true;
    clearTimeout(this.#closeTimer);
    notify(this.onclose, close);
  }
}
