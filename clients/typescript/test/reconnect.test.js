/** What happens when connections are lost: over real gateways that are killed, and a network that fails. */

import assert from "node:assert/strict";
import { suite, test } from "node:test";
import * as node from "node:test";
import { Worker } from "node:worker_threads";

import {
  ConnectionClosedError,
  FramesUnconfirmedError,
  LimitExceededError,
  RequestTimeoutError,
  StreamNotFoundError,
} from "mewstream";
import { event, Gateway, Network, QUICK, sleep, take, tokenOf, until, useGateway, within } from "./support.js";

const { gateway, join } = useGateway(node, { participants: ["ann", "bob", "cy"], hasData: true });

/** A network of a test, and a participant who joins by it. */
async function joinBy(t, participant, options = {}) {
  const network = await new Network(gateway).start();
  t.after(() => network.stop());
  const [space] = await join([participant, { ...options, url: network.url }]);
  return [network, space];
}

suite("resume", () => {
  test("after kill -9, everything goes on where it was", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.open({ desiredId: "hero" });
    const frames = bob.subscribe("hero");
    const seen = bob.streams;
    await stream.grant("bob");
    for (let number = 0; number < 500; number++) await stream.send(String(number));
    await stream.flush();
    const back = [event(ann, "resumed"), event(bob, "resumed")];
    const before = bob.streams.get("hero");
    await gateway.kill();
    await until(() => !ann.isConnected && !bob.isConnected);
    const later = stream.send("500"); // it waits
    await gateway.start();
    const resumed = await Promise.all(back);
    assert.deepEqual(
      resumed.map(({ recovered, unconfirmed }) => [recovered, unconfirmed]),
      [
        [true, 0],
        [true, 0],
      ],
    );
    assert.ok(resumed.every(({ fromSeq, toSeq }) => fromSeq > 500 && toSeq >= fromSeq - 1));
    await later;
    await before.send("501"); // the right has survived
    const received = await take(frames, 502);
    assert.deepEqual(
      received.map(({ text }) => text).sort((a, b) => a - b),
      Array.from({ length: 502 }, (_, n) => String(n)),
    );
    assert.ok(received.every(({ gap }) => gap === 0));
    assert.equal(new Set(received.map(({ seq }) => seq)).size, 502);
    assert.equal(seen.get("hero"), before);
    await stream.close();
  });

  test("brings what was missed, in order and once", async (t) => {
    const [ann] = await join("ann");
    const [network, bob] = await joinBy(t, "bob");
    const stream = await ann.open();
    const frames = bob.subscribe(stream.id);
    const events = [];
    await until(() => bob.streams.has(stream.id));
    bob.on("*", (each) => events.push(each));
    network.isDown = true;
    network.cut();
    await until(() => !bob.isConnected);
    for (let number = 0; number < 1000; number++) await stream.send(String(number));
    const other = await ann.open();
    await ann.chat("missed");
    await other.close();
    await stream.grant("cy").catch(() => undefined);
    network.isDown = false;
    const received = await take(frames, 1000);
    assert.deepEqual(
      received.map(({ text }) => text),
      Array.from({ length: 1000 }, (_, number) => String(number)),
    );
    await until(() => events.some(({ type }) => type === "streamClosed"));
    const types = events.map(({ type }) => type).filter((type) => type !== "message");
    assert.deepEqual(types.slice(0, 2), ["disconnected", "resumed"]);
    // The connection of bob was lost without a close, so that he has left and joined again.
    assert.deepEqual(
      types.slice(2).filter((type) => !/^(left|joined|refused)$/.test(type)),
      ["streamOpened", "chat", "streamClosed"],
    );
    assert.equal(bob.streams.has(other.id), false);
    await stream.close();
  });

  test("a request whose answer was lost is repeated, and carried out once", async (t) => {
    const [network, ann] = await joinBy(t, "ann");
    const [bob] = await join("bob");
    const opened = [];
    bob.on("streamOpened", ({ stream }) => opened.push(stream.id));
    network.hold("gateway");
    const opening = ann.open();
    await until(() => opened.length === 1);
    network.cut();
    const stream = await within(opening);
    assert.deepEqual([stream.id, stream.isMine], [opened[0], true]);
    await bob.flush();
    assert.equal(opened.length, 1);
    await stream.close();
  });

  test("frames that the gateway has not confirmed are counted", async (t) => {
    const [network, ann] = await joinBy(t, "ann");
    const stream = await ann.open();
    await stream.send("confirmed");
    await stream.flush();
    network.hold("client");
    for (let number = 0; number < 10; number++) await stream.send(String(number));
    const resumed = event(ann, "resumed");
    const flushed = assert.rejects(
      stream.flush(),
      (error) => error instanceof FramesUnconfirmedError && error.count === 10,
    );
    network.cut();
    await flushed;
    assert.equal((await resumed).unconfirmed, 10);
    await stream.flush(); // each is reported once
    await stream.close();
  });

  test("without what was missed, that is told, and what is gone is closed", async (t) => {
    const forgetful = await new Gateway({ participants: ["ann"] }).start();
    t.after(() => forgetful.stop());
    const ann = await forgetful.join("ann");
    t.after(() => ann.close());
    const stream = await ann.open();
    const all = ann.subscribe();
    const [closed, gap, resumed] = [event(ann, "streamClosed"), event(ann, "gap"), event(ann, "resumed")];
    await forgetful.restart();
    assert.deepEqual([(await closed).how, (await closed).stream], ["lost", stream.id]);
    assert.match((await gap).reason, /another journal|another run|forgotten/);
    assert.equal((await resumed).recovered, false);
    assert.deepEqual([stream.status, ann.streams.size], ["lost", 0]);
    await assert.rejects(stream.send("more"), StreamNotFoundError);
    const next = await ann.open();
    await next.send("1");
    await next.send("2");
    assert.deepEqual(
      (await take(all, 2)).map((frame) => frame.gap),
      [1, 0],
    );
  });

  test("a drained gateway is returned to", async () => {
    const [ann] = await join("ann");
    const [lost, resumed] = [event(ann, "disconnected"), event(ann, "resumed")];
    gateway.signal("SIGTERM");
    assert.match((await lost).reason, /going away/);
    await gateway.stopped();
    await gateway.start();
    assert.equal((await resumed).recovered, true);
  });

  test("a gateway that is silent is given up, and returned to", async () => {
    const [ann] = await join(["ann", { heartbeat: 200, connectTimeout: 500 }]);
    const lost = event(ann, "disconnected");
    gateway.signal("SIGSTOP");
    assert.match((await lost).reason, /nothing came/);
    const resumed = event(ann, "resumed");
    gateway.signal("SIGCONT");
    assert.equal((await resumed).recovered, true);
    await ann.chat("here again");
  });
});

suite("the end", () => {
  test("comes when another takes our place", async () => {
    const [first] = await join("ann");
    const frames = first.subscribe();
    await join("ann");
    const error = await within(first.closed);
    assert.ok(error instanceof ConnectionClosedError);
    assert.equal(error.code, 4502);
    await assert.rejects(frames.next(), { name: "ConnectionClosedError", code: 4502 });
    await assert.rejects(first.flush(), { name: "ConnectionClosedError" });
  });

  test("comes with the first loss where nothing is made again", async (t) => {
    const [network, ann] = await joinBy(t, "ann", { reconnect: false });
    network.cut();
    assert.equal((await within(ann.closed)).code, 1006);
  });

  test("comes after as many attempts as were allowed", async (t) => {
    const [network, ann] = await joinBy(t, "ann", { reconnect: { ...QUICK, attempts: 3 } });
    const waiting = assert.rejects(
      ann.closed.then(() => ann.chat("late")),
      { name: "ConnectionClosedError" },
    );
    network.isDown = true;
    network.cut();
    assert.match((await within(ann.closed)).message, /could not be made again/);
    await waiting;
  });

  test("comes when the token is not valid any more", async (t) => {
    let calls = 0;
    const token = () => (calls++ ? "expired" : tokenOf("ann"));
    const [network, ann] = await joinBy(t, "ann", { token });
    network.cut();
    assert.match((await within(ann.closed)).message, /token/);
  });

  test("may come while there is no connection", async (t) => {
    const [network, ann] = await joinBy(t, "ann");
    const stream = await ann.open();
    network.isDown = true;
    network.cut();
    await until(() => !ann.isConnected);
    const sending = assert.rejects(stream.send("never"), { name: "ConnectionClosedError" });
    await within(ann.close());
    await sending;
    assert.equal(await ann.closed, undefined);
  });

  test("by a drain tells of frames that nobody has confirmed", async (t) => {
    const [network, ann] = await joinBy(t, "ann");
    const stream = await ann.open();
    network.hold("client");
    await stream.send("lost");
    const drained = assert.rejects(ann.drain(), FramesUnconfirmedError);
    network.cut();
    await within(drained);
  });
});

suite("limits", () => {
  test("what has to wait until the network takes it stays in order", async (t) => {
    const [network, ann] = await joinBy(t, "ann");
    const [bob] = await join("bob");
    const stream = await ann.open();
    const frames = bob.subscribe(stream.id, { maxPending: Infinity });
    const filler = "x".repeat(10_000);
    const sent = [];
    let isWaiting = true;
    network.hold("client");
    for (let number = 0; number < 1000; number++) sent.push(stream.send(`${number} ${filler}`)); // nobody awaits them
    sent.at(-1).then(() => (isWaiting = false));
    await sleep(50);
    assert.ok(isWaiting);
    network.release("client");
    for (let number = 1000; isWaiting; number++) {
      sent.push(stream.send(`${number} small`));
      await sleep(1);
    }
    await Promise.all(sent);
    await stream.flush();
    const received = await take(frames, sent.length);
    assert.deepEqual(
      received.map(({ text }) => parseInt(text)),
      sent.map((_, number) => number),
    );
    await stream.close();
  });

  test("a frame that is too large is refused, and the connection comes back", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open();
    const resumed = event(ann, "resumed");
    await stream.send("x".repeat(2 << 20));
    await assert.rejects(stream.flush(), LimitExceededError);
    await resumed;
    await stream.send("small");
    await stream.flush();
    await stream.close();
  });

  test("so is a request, which is not repeated for ever", async () => {
    const [ann] = await join("ann");
    await assert.rejects(ann.chat("x".repeat(2 << 20)), LimitExceededError);
    await ann.chat("small");
  });

  test("a stream that is opened too late is closed again", async (t) => {
    const [network, ann] = await joinBy(t, "ann", { requestTimeout: 300 });
    const [bob] = await join("bob");
    const closed = event(bob, "streamClosed");
    network.hold("gateway");
    await assert.rejects(ann.open({ desiredId: "late" }), RequestTimeoutError);
    network.release("gateway");
    await closed;
    assert.equal(bob.streams.has("late"), false);
  });

  test("a reader that does not read loses frames, and is told which", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open();
    const blocked = new Int32Array(new SharedArrayBuffer(4));
    const worker = new Worker(new URL("slow-reader.js", import.meta.url), {
      workerData: { url: gateway.url, token: tokenOf("bob"), stream: stream.id, blocked },
    });
    const said = [];
    worker.on("message", (each) => said.push(each));
    const ended = new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
    await until(() => said.length === 1);
    const data = "x".repeat(10_000);
    for (let number = 0; number < 5000; number++) await stream.send(data);
    await stream.flush();
    Atomics.store(blocked, 0, 1);
    Atomics.notify(blocked, 0);
    await until(() => said.includes("told")); // when it has caught up
    await stream.send("last");
    await within(ended);
    const { received, gaps, told } = said.at(-1);
    assert.ok(received < 5001, "it has read everything: the test would show nothing");
    assert.equal(received + gaps, 5001);
    assert.equal(told, gaps);
    await stream.close();
  });
});
