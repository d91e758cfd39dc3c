/** What a page does in a real browser. The test beside it does the other half: `ask` tells it when. */

import * as mewstream from "/dist/index.js";

const problems = [];
addEventListener("error", ({ message }) => problems.push(message));
addEventListener("unhandledrejection", ({ reason }) => problems.push(String(reason)));

async function ask(what, payload = {}) {
  const response = await fetch(`/${what}`, { method: "POST", body: JSON.stringify(payload) });
  return response.json();
}

function event(source, type) {
  return new Promise((resolve) => {
    const remove = source.on(type, (happened) => {
      remove();
      resolve(happened);
    });
  });
}

async function take(frames, count) {
  const taken = [];
  for (let number = 0; number < count; number++) taken.push((await frames.next()).value);
  return taken;
}

async function refusedBy(promise) {
  return promise.then(
    () => "nothing",
    (error) => [error.name, error instanceof mewstream.MewError, error.code],
  );
}

const results = {};

const scenarios = {
  /** Everything that a participant does, and a gateway that is killed meanwhile. */
  async participant({ url, token }) {
    const reconnect = { first: 20, most: 100 };
    const space = await mewstream.connect(url, { space: "demo", participant: "page", token, reconnect });
    results.joined = [space.participant, [...space.participants.keys()], space.streams.get("hero").owner];

    // Frames of another participant, as text and as bytes.
    const frames = space.subscribe("hero");
    await ask("send");
    const [text, bytes] = await take(frames, 2);
    results.frames = [text.json(), text.writer, [...bytes.data], bytes.data instanceof Uint8Array, bytes.isText];

    // A stream of our own, with rights.
    const mine = await space.open({ description: "of a page" });
    const ours = mine.subscribe();
    const granted = event(space, "writeGranted");
    await mine.grant("node", { reason: "your turn" });
    results.granted = [(await granted).reason, mine.writers];
    await mine.send({ x: 1 });
    await mine.send(new Uint8Array([1, 2, 255]));
    await mine.flush();
    await ask("write", { stream: mine.id });
    const written = await take(ours, 3);
    results.written = written.map((frame) => [frame.writer, frame.isText ? frame.text : [...frame.data], frame.gap]);
    await mine.revoke("node");
    results.revoked = [mine.writers, await ask("write", { stream: mine.id })];

    // Refusals, tools, proposals.
    results.refused = await refusedBy(space.streams.get("hero").send("no"));
    space.tool("double", {}, ({ number }) => ({ number: number * 2 }));
    results.tool = await ask("call-tool");
    const proposal = await space.propose("tools/call", { name: "walk", arguments: {} }, { to: "node" });
    results.proposal = (await proposal.result()).structuredContent;

    // A slow reader, and many frames.
    const latest = mine.subscribe({ onSlow: "latest" });
    for (let number = 0; number < 2000; number++) await mine.send(String(number));
    await mine.flush();
    const [newest] = await take(latest, 1);
    results.slow = [newest.text, newest.gap, latest.dropped];

    // The gateway is killed, and comes back.
    const [lost, resumed] = [event(space, "disconnected"), event(space, "resumed")];
    await ask("kill");
    await lost;
    results.lost = space.isConnected;
    await ask("start-and-send");
    results.resumed = (await resumed).recovered;
    results.missed = (await take(frames, 100)).map((frame) => [frame.text, frame.gap]);
    await mine.send("after it");
    await mine.flush();
    await mine.close();
    await space.drain();
    results.closed = (await space.closed) ?? "here";
  },

  async strangers({ url, token }) {
    results.wrongToken = await refusedBy(mewstream.connect(url, { participant: "page", token: "wrong" }));
    results.wrongName = await refusedBy(mewstream.connect(url, { participant: "node", token }));
    results.nobody = await refusedBy(mewstream.connect("ws://127.0.0.1:1"));
    results.strangeToken = (await mewstream.connect(url, { token: `${token}/=` })).participant;
  },

  async anotherOrigin({ url, token }) {
    results.refused = await refusedBy(mewstream.connect(url, { participant: "page", token }));
  },
};

const { scenario, ...options } = await ask("begin");
try {
  await scenarios[scenario](options);
} catch (error) {
  problems.push(`${error.name}: ${error.message}`);
}
await ask("done", { results, problems });
