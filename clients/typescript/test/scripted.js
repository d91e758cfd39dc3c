/** A WebSocket server that sends whatever a test tells it to: nothing here is checked. */

import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

import { connect } from "mewstream";
import { QUICK } from "./support.js";

/** One WebSocket frame of a server. */
export function frame(opcode, payload, { isLast = true, bits = 0 } = {}) {
  const data = Buffer.from(payload);
  const head = Buffer.alloc(data.length < 126 ? 2 : data.length < 0x10000 ? 4 : 10);
  head[0] = (isLast ? 0x80 : 0) | bits | opcode;
  head[1] = data.length < 126 ? data.length : data.length < 0x10000 ? 126 : 127;
  if (head.length === 4) head.writeUInt16BE(data.length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(data.length), 2);
  return Buffer.concat([head, data]);
}

/** A connection of a client, from the side of the server. */
export class Peer {
  #socket;
  #rest = Buffer.alloc(0);
  /** The text messages that came, as what they are in JSON where they are that. */
  received = [];
  onmessage = () => undefined;

  constructor(socket, headers) {
    this.#socket = socket;
    this.headers = headers;
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => this.#read(chunk));
  }

  raw(bytes) {
    this.#socket.write(bytes);
  }

  send(message) {
    if (message instanceof Uint8Array) this.raw(frame(2, message));
    else this.raw(frame(1, typeof message === "string" ? message : JSON.stringify(message)));
  }

  welcome(payload = {}, fields = {}) {
    const you = { id: "me", capabilities: [{ kind: "*" }] };
    this.send({
      kind: "system/welcome",
      from: "system:gateway",
      id: "gw-1",
      seq: 1,
      payload: { you, participants: [], active_streams: [], epoch: "e", seq: 1, ...payload },
      ...fields,
    });
  }

  close(code) {
    this.raw(frame(8, code === undefined ? [] : [code >> 8, code & 0xff]));
  }

  destroy() {
    this.#socket.destroy();
  }

  #read(chunk) {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (;;) {
      const buffer = this.#rest;
      if (buffer.length < 2) return;
      const short = buffer[1] & 0x7f;
      const start = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (buffer.length < start) return;
      const length = short < 126 ? short : short === 126 ? buffer.readUInt16BE(2) : Number(buffer.readBigUInt64BE(2));
      if (buffer.length < start + 4 + length) return;
      const mask = buffer.subarray(start, start + 4);
      const data = Buffer.from(buffer.subarray(start + 4, start + 4 + length));
      for (let at = 0; at < length; at++) data[at] ^= mask[at & 3];
      this.#rest = buffer.subarray(start + 4 + length);
      this.#take(buffer[0] & 0x0f, data);
    }
  }

  #take(opcode, data) {
    if (opcode === 8) {
      this.raw(frame(8, data.subarray(0, 2)));
      this.#socket.end();
    }
    if (opcode !== 1) {
      this.received.push({ opcode, data });
      return;
    }
    const text = data.toString();
    const message = text.startsWith("{") ? JSON.parse(text) : text;
    this.received.push(message);
    this.onmessage(message);
  }
}

/** Relays what the client sends, and answers `stream/sync`, like a gateway would. */
export function behave(peer) {
  peer.onmessage = (message) => {
    if (typeof message === "string") return;
    const answer = { from: "system:gateway", correlation_id: [message.id] };
    if (message.kind === "stream/sync") peer.send({ ...answer, kind: "stream/synced", payload: {} });
    else if (message.kind) peer.send({ from: "me", ...message });
  };
}

/** Serves `script`, which is called with each {@link Peer} when it has sent its join. */
export async function serve(t, script) {
  const server = createServer((_, response) => response.writeHead(403).end("no"));
  server.on("upgrade", (request, socket) => {
    const accept = createHash("sha1").update(
      `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`,
    );
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept.digest("base64")}\r\nSec-WebSocket-Protocol: mew.v0.4\r\n\r\n`,
    );
    const peer = new Peer(socket, request.headers);
    peer.onmessage = (join) => script(peer, join);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `ws://127.0.0.1:${server.address().port}`;
}

/** Joins a scripted gateway. */
export async function joinScripted(t, script, options = {}) {
  const space = await connect(await serve(t, script), { reconnect: QUICK, token: "a-token", ...options });
  t.after(() => space.close());
  return space;
}

/** Join a gateway that behaves, and return the space and the gateway's end of its first connection. */
export async function joinBehaved(t) {
  let peer;
  const space = await joinScripted(t, (each) => {
    peer ??= each;
    each.welcome();
    behave(each);
  });
  return { space, peer };
}
