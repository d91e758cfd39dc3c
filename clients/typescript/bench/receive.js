/**
 * How many frames a second of CPU time are received: by plain `ws`, which only makes text of them, and by this client,
 * which splits them and gives them to a `for await` loop.
 *
 *     npm run build && npm install --no-save ws && node bench/receive.js
 */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { Worker, isMainThread } from "node:worker_threads";

const FRAMES = 1_000_000;
const LAST = "#stream-1|9000000|character-server#end";
const RUNS = 5;

const readers = {
  async ws(url) {
    const { WebSocket } = await import("ws");
    const socket = new WebSocket(url, ["mew.v0.4"]);
    socket.on("open", () => socket.send("{}"));
    let begin;
    await new Promise((resolve) =>
      socket.on("message", (data) => {
        begin ??= process.cpuUsage();
        if (data.toString() === LAST) resolve();
      }),
    );
    return process.cpuUsage(begin);
  },

  async mewstream(url) {
    const { connect } = await import("mewstream");
    const space = await connect(url);
    const begin = process.cpuUsage();
    for await (const frame of space.subscribe("stream-1", { maxPending: Infinity })) if (frame.text === "end") break;
    return process.cpuUsage(begin);
  },
};

/** Sends a welcome and then all frames, as fast as they are taken. */
function serve() {
  const message = (text) => {
    const data = Buffer.from(text);
    const head = data.length < 126 ? [0x81, data.length] : [0x81, 126, data.length >> 8, data.length & 0xff];
    return Buffer.concat([Buffer.from(head), data]);
  };
  const stream = { stream_id: "stream-1", owner: "character-server", authorized_writers: ["character-server"] };
  const payload = {
    you: { id: "reader", capabilities: [] },
    participants: [],
    active_streams: [stream],
    epoch: "e",
    seq: 1,
  };
  const welcome = message(
    JSON.stringify({ kind: "system/welcome", from: "system:gateway", id: "gw-1", seq: 1, payload }),
  );
  const frames = Array.from({ length: FRAMES }, (_, x) =>
    message(`#stream-1|${x + 2}|character-server#{"x":${x % 1000}}`),
  );
  const chunks = [];
  for (let at = 0; at < FRAMES; at += 1000) chunks.push(Buffer.concat(frames.slice(at, at + 1000)));
  chunks.push(message(LAST));
  const server = createServer().on("upgrade", (request, socket) => {
    const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash("sha1").update(key).digest("base64");
    socket.on("error", () => undefined);
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: mew.v0.4\r\n\r\n`,
    );
    socket.once("data", () => {
      socket.write(welcome);
      let next = 0;
      const send = () => {
        while (next < chunks.length) if (!socket.write(chunks[next++])) return void socket.once("drain", send);
      };
      setTimeout(send, 100); // when the reader has subscribed
    });
  });
  server.listen(9778, "127.0.0.1");
}

const [reader] = process.argv.slice(2);
if (!isMainThread) serve();
else if (reader) {
  const { user, system } = await readers[reader]("ws://127.0.0.1:9778");
  console.log(Math.round(FRAMES / ((user + system) / 1e6)));
  process.exit();
} else {
  const script = fileURLToPath(import.meta.url);
  const server = new Worker(script);
  await new Promise((resolve) => setTimeout(resolve, 4000));
  const measured = { ws: [], mewstream: [] };
  for (let run = 0; run < RUNS; run++) {
    for (const [name, speeds] of Object.entries(measured)) {
      speeds.push(
        Number(spawnSync("node", [script, name], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).stdout),
      );
    }
  }
  const median = (speeds) => speeds.sort((a, b) => a - b)[RUNS >> 1];
  console.log(`ws ${median(measured.ws)}, mewstream ${median(measured.mewstream)} frames a second of CPU time`);
  console.log(`ratio ${(median(measured.mewstream) / median(measured.ws)).toFixed(2)}`);
  await server.terminate();
}
