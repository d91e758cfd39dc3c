/** A reader in a thread that is blocked for a while, like a page that computes. */

import { parentPort, workerData } from "node:worker_threads";

import { connect } from "mewstream";

const { url, token, stream, blocked } = workerData;
const space = await connect(url, { token });
const frames = space.subscribe(stream, { maxPending: Infinity });
let told = 0;
space.on("gap", ({ count }) => {
  told += count;
  parentPort.postMessage("told");
});
parentPort.postMessage("ready");
Atomics.wait(blocked, 0, 0);
let [received, gaps] = [0, 0];
for await (const frame of frames) {
  received++;
  gaps += frame.gap;
  if (frame.text === "last") break;
}
await space.close();
parentPort.postMessage({ received, gaps, told });
