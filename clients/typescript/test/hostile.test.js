/** A gateway that sends anything: nothing of it ends the client, throws where nobody catches, or grows without end. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { suite, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { connect, ConnectError, JoinRefusedError } from "mewstream";
import { NodeWebSocket } from "../dist/node-websocket.js";
import { behave, frame, joinBehaved, joinScripted, serve } from "./scripted.js";
import { event, until, within } from "./support.js";

const OPENED = { stream_id: "s", owner: "me", authorized_writers: ["me"], alias: "a" };
const STRANGE = [null, 0, -1, 1.5, true, "", "text", [], [null], [1], ["a"], {}, { a: 1 }, [[]], [{}], 1e30, 2 ** 53];
const KINDS = [
  ...[
    "system/welcome",
    "system/presence",
    "system/error",
    "system/notice",
    "system/unknown",
    "stream/open",
    "stream/ready",
  ],
  ...["stream/start", "stream/data", "stream/complete", "stream/error", "stream/close", "stream/write-granted"],
  ...[
    "stream/write-revoked",
    "stream/read-granted",
    "stream/read-revoked",
    "stream/ownership-transferred",
    "stream/listed",
  ],
  ...["participant/listed", "stream/synced", "space/invite-ack", "chat", "mcp/request", "mcp/response", "mcp/proposal"],
  ...["mcp/withdraw", "mcp/reject", "capability/grant", "unknown", "__proto__", "constructor"],
];
const KEYS = [
  ...["stream_id", "stream", "participant", "participant_id", "event", "owner", "authorized_writers", "reason", "you"],
  ...[
    "authorized_readers",
    "conditions",
    "formats",
    "alias",
    "status",
    "new_owner",
    "previous_owner",
    "error",
    "message",
  ],
  ...[
    "limit",
    "notice",
    "count",
    "first_seq",
    "text",
    "method",
    "params",
    "participants",
    "active_streams",
    "epoch",
    "seq",
  ],
  ...["resume", "sequence", "content", "format_id", "by", "capabilities", "next", "recipient", "metadata", "__proto__"],
];
const ENVELOPE_KEYS = ["id", "ts", "from", "to", "correlation_id", "context", "payload", "seq", "kind", "protocol"];

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

/** How many bytes this process holds, without what could be freed. */
function held() {
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Collects the uncaught exceptions of a test. The runner itself listens to them, and would fail the test. */
function uncaughtIn(t) {
  const uncaught = [];
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  const listen = (error) => uncaught.push(error.message);
  process.on("uncaughtException", listen);
  t.after(() => {
    process.off("uncaughtException", listen);
    others.forEach((each) => process.on("uncaughtException", each));
  });
  return uncaught;
}

/** Sends all of it to a client that listens to everything, and sees that it still lives. */
async function exchange(t, messages) {
  let connections = 0;
  const space = await joinScripted(t, (peer) => {
    connections++;
    peer.welcome({ active_streams: [OPENED] });
    behave(peer);
    const relay = peer.onmessage;
    peer.onmessage = (message) => {
      relay(message);
      if (message.payload?.text === "begin") for (const each of messages) peer.send(each);
    };
  });
  const subscriptions = [space.subscribe("s"), space.subscribe(), space.subscribe("unknown")];
  const events = [];
  space.on("*", (each) => events.push(each));
  space.tool("t", {}, () => 1);
  await space.chat("begin");
  await within(space.chat("still here"));
  assert.equal(connections, 1);
  assert.equal(space.isConnected, true);
  for (const stream of space.streams.values()) {
    for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(stream))) {
      if (!/^(constructor|send|flush|subscribe|.*grant.*|revoke.*|transfer|start|complete|fail|close)$/i.test(name))
        void stream[name];
    }
  }
  for (const subscription of subscriptions) {
    for (let left = subscription.pending; left > 0; left--) {
      const { value } = await subscription.next();
      assert.ok(value.data instanceof Uint8Array);
      assert.ok(Number.isSafeInteger(value.seq) && Number.isSafeInteger(value.gap), `${value.seq} ${value.gap}`);
    }
  }
  assert.ok(Number.isSafeInteger(space.position.seq));
  assert.equal({}.polluted, undefined);
  return { space, events };
}

suite("messages", () => {
  test("that are no envelopes are ignored", async (t) => {
    const strange = [
      "",
      "{",
      "null",
      "[]",
      "1",
      '"text"',
      "{}",
      '{"kind":1}',
      '{"kind":null}',
      "[".repeat(100_000),
      "\u0000",
      '{"kind":"chat"',
    ];
    const deep = `{"kind":"chat","payload":{"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}}`;
    await exchange(t, [...strange, deep, new Uint8Array(), new Uint8Array([0xff, 0xfe]), new Uint8Array([0x7b])]);
  });

  test("with any value in any field of any kind do no harm", async (t) => {
    const messages = [];
    for (const kind of KINDS) {
      for (const from of ["system:gateway", "somebody"]) {
        for (const key of KEYS) {
          for (const value of STRANGE) {
            // A key that is named __proto__ is an ordinary key in JSON.
            const payload = `{"stream_id":"s","participant":{"id":"p"},${JSON.stringify(key)}:${JSON.stringify(value)}}`;
            messages.push(`{"kind":"${kind}","from":"${from}","id":"i","payload":${payload}}`);
          }
        }
      }
    }
    await exchange(t, messages);
  });

  test("with any value in any field of an envelope do no harm", async (t) => {
    const messages = ENVELOPE_KEYS.flatMap((key) =>
      STRANGE.flatMap((value) =>
        KINDS.map((kind) => ({
          kind,
          from: "system:gateway",
          id: "i",
          payload: { stream: OPENED, ...OPENED },
          [key]: value,
        })),
      ),
    );
    await exchange(
      t,
      messages.filter(({ kind, seq }) => kind !== "system/welcome" || seq === undefined),
    );
  });

  test("with huge numbers are positions only where JavaScript knows them exactly", async (t) => {
    const { space, events } = await exchange(t, [
      '{"kind":"chat","from":"a","seq":9007199254740993,"payload":{"text":"too large"}}',
      '{"kind":"chat","from":"a","seq":1e400,"payload":{"text":"infinite"}}',
      '{"kind":"chat","from":"a","seq":77,"payload":{"text":"good"}}',
      "#s|99999999999999999999|me#too large",
      `#s|${"9".repeat(5000)}|me#far too large`,
      "#s|78|me#good",
    ]);
    assert.deepEqual(
      events.filter(({ message }) => message?.from === "a").map(({ message }) => message.seq),
      [undefined, undefined, 77],
    );
    assert.equal(space.position.seq, 78);
  });

  test("that are malformed frames are ignored", async (t) => {
    const frames = [
      "#",
      "##",
      "#s",
      "#s#data",
      "#s|#",
      "#s||me#",
      "#|5|me#",
      "#s|x|me#",
      "#s|1e3|me#",
      "#s|0x5|me#",
      "#s|-5|me#",
      "#s| 5|me#",
    ];
    const { space } = await exchange(t, [
      ...frames,
      ...frames.map((each) => Buffer.from(each)),
      Buffer.from([0x23, 0xff, 0x7c, 0x23]),
    ]);
    assert.equal(space.position.seq, 1);
  });

  test("that only a gateway may send are believed from nobody else", async (t) => {
    const { space, events } = await exchange(t, [
      { kind: "system/welcome", from: "bob", payload: { you: { id: "bob" } } },
      { kind: "stream/open", from: "bob", payload: { stream_id: "forged" } },
      {
        kind: "stream/write-revoked",
        from: "bob",
        payload: { stream_id: "s", participant_id: "me", authorized_writers: [] },
      },
      { kind: "system/presence", from: "bob", payload: { event: "join", participant: { id: "ghost" } } },
    ]);
    assert.equal(space.participant, "me");
    assert.deepEqual(
      [[...space.streams.keys()], space.streams.get("s").writers, space.participants.size],
      [["s"], ["me"], 0],
    );
    assert.deepEqual(
      new Set(events.filter(({ message }) => message?.from === "bob").map(({ type }) => type)),
      new Set(["message"]),
    );
  });

  test("that call a tool which throws something without a text are answered", async (t) => {
    const { space, peer } = await joinBehaved(t);
    space.tool("t", {}, (args) => {
      throw args;
    });
    const params = { name: "t", arguments: { toString: 1, valueOf: 1 } };
    peer.send({ kind: "mcp/request", id: "q", from: "a", to: ["me"], payload: { method: "tools/call", params } });
    const answer = () => peer.received.find(({ kind }) => kind === "mcp/response");
    await until(answer);
    assert.deepEqual([answer().correlation_id, answer().payload.error.code], [["q"], -32603]);
  });

  test("that come too fast are dropped, and counted", async (t) => {
    const frames = Array.from({ length: 50_000 }, (_, number) => `#s|${number + 2}|bob#${number}`);
    let peer;
    const space = await joinScripted(t, (each) => {
      peer = each;
      peer.welcome({ active_streams: [OPENED] });
      behave(peer);
    });
    const subscription = space.subscribe("s");
    for (const each of frames) peer.send(each);
    await space.chat("behind them");
    assert.deepEqual([subscription.pending, subscription.dropped], [10_000, 40_000]);
    const { value } = await subscription.next();
    assert.deepEqual([value.text, value.gap], ["40000", 40_000]);
  });
});

suite("connections", () => {
  const broken = {
    "cut within a frame": (peer) => {
      peer.raw(frame(1, "x".repeat(1000)).subarray(0, 500));
      peer.destroy();
    },
    "text that is not UTF-8": (peer) => peer.raw(frame(1, [0xff, 0xfe])),
    "reserved bits": (peer) => peer.raw(frame(1, "{}", { bits: 0x40 })),
    "a masked frame": (peer) => peer.raw(Buffer.of(0x81, 0x80, 0, 0, 0, 0)),
    "an unknown opcode": (peer) => peer.raw(frame(5, "")),
    "a continuation of nothing": (peer) => peer.raw(frame(0, "x")),
    "fragments out of order": (peer) => peer.raw(Buffer.concat([frame(1, "x", { isLast: false }), frame(1, "y")])),
    "a long ping": (peer) => peer.raw(frame(9, "x".repeat(126))),
    "a cut ping": (peer) => peer.raw(frame(9, "x", { isLast: false })),
    "a length beyond all memory": (peer) =>
      peer.raw(Buffer.of(0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)),
    "an empty close": (peer) => peer.close(),
  };
  for (const [what, hurt] of Object.entries(broken)) {
    test(`that end by ${what} are made again`, async (t) => {
      let connections = 0;
      const joins = [];
      const space = await joinScripted(t, (peer, join) => {
        joins.push(join);
        peer.welcome();
        behave(peer);
        if (++connections === 1) hurt(peer);
      });
      await within(event(space, "resumed"));
      await within(space.chat("here again"));
      assert.deepEqual(joins[1].resume, { epoch: "e", seq: 1 });
    });
  }

  test("messages may come in fragments, with pings between", async (t) => {
    const { space, peer } = await joinBehaved(t);
    const heard = event(space, "chat");
    const body = JSON.stringify({ kind: "chat", from: "a", payload: { text: `${"ü".repeat(1_500_000)}!` } });
    const bytes = Buffer.from(body);
    const middle = bytes.indexOf("ü") + 1; // within a character
    const whole = Buffer.concat([
      frame(1, bytes.subarray(0, middle), { isLast: false }),
      frame(9, "are you there"),
      frame(0, bytes.subarray(middle, 70_000), { isLast: false }),
      frame(0, bytes.subarray(70_000)),
    ]);
    for (let at = 0; at < whole.length; at += 333_333) peer.raw(whole.subarray(at, at + 333_333));
    assert.equal((await heard).text.length, 1_500_001);
    await until(() => peer.received.some(({ opcode, data }) => opcode === 10 && data.toString() === "are you there"));
  });

  for (const [what, payload, count] of [
    ["empty", "", 1_000_000],
    ["tiny", " ", 300_000],
  ]) {
    test(`${what} fragments take no more memory than what is in them`, async (t) => {
      const { space, peer } = await joinBehaved(t);
      const heard = event(space, "chat");
      const many = Buffer.concat(Array(10_000).fill(frame(0, payload, { isLast: false })));
      const before = held();
      peer.raw(frame(1, '{"kind":"chat","from":"a",', { isLast: false }));
      for (let sent = 0; sent < count; sent += 10_000) peer.raw(many);
      peer.raw(frame(9, "all there"));
      await until(() => peer.received.some(({ opcode }) => opcode === 10));
      const grown = held() - before;
      assert.ok(grown < 8 << 20, `${grown} bytes`);
      peer.raw(frame(0, '"payload":{"text":"whole"}}'));
      assert.equal((await heard).text, "whole");
    });
  }

  test("a message that comes in tiny pieces takes no more memory than what is in it", async (t) => {
    const { space, peer } = await joinBehaved(t);
    const heard = event(space, "chat");
    const whole = frame(1, JSON.stringify({ kind: "chat", from: "a", payload: { text: "x".repeat(20_000) } }));
    const before = held();
    for (let at = 0; at < whole.length - 1; at++) {
      peer.raw(whole.subarray(at, at + 1));
      await nextTurn();
    }
    const grown = held() - before;
    assert.ok(grown < 1 << 20, `${grown} bytes`);
    peer.raw(whole.subarray(-1));
    assert.equal((await heard).text.length, 20_000);
  });

  test("a message too deep to handle ends the connection with a reason, and is not asked for again", async (t) => {
    const uncaught = uncaughtIn(t);
    const joins = [];
    const deep = "[".repeat(200_000) + "]".repeat(200_000);
    const space = await joinScripted(t, (peer, join) => {
      joins.push(join);
      peer.welcome({ active_streams: [OPENED], resume: { recovered: true, from_seq: (join.resume?.seq ?? 0) + 1 } });
      behave(peer);
      const numbered = (sequence, content) =>
        `{"kind":"stream/data","from":"bob","seq":${sequence + 4},` +
        `"payload":{"stream_id":"s","sequence":${sequence},"content":${content}}}`;
      if (joins.length > 1) peer.send(numbered(3, "3"));
      else {
        peer.onmessage = () => {
          peer.send(numbered(1, "1"));
          peer.send(numbered(2, deep));
        };
      }
    });
    const frames = space.subscribe("s");
    const lost = event(space, "disconnected");
    const resumed = event(space, "resumed");
    const chat = space.chat("go on");
    assert.match((await within(lost)).reason, /^a message from the gateway could not be handled: RangeError/);
    await within(resumed);
    await within(chat);
    assert.deepEqual(joins[1].resume, { epoch: "e", seq: 6 });
    for (const expected of [
      ["1", 0],
      ["3", 1],
    ]) {
      const { value } = await within(frames.next());
      assert.deepEqual([value.text, value.gap], expected);
    }
    assert.deepEqual(uncaught, []);
  });

  test("an exception of a listener is reported, and every message still comes once", async (t) => {
    const uncaught = uncaughtIn(t);
    const { space, peer } = await joinBehaved(t);
    const heard = [];
    space.on("disconnected", ({ reason }) => heard.push(reason));
    space.on("chat", ({ text }) => {
      heard.push(text);
      throw new Error(text);
    });
    const all = Buffer.concat(
      ["1", "2", "3"].map((text) => frame(1, JSON.stringify({ kind: "chat", from: "a", payload: { text } }))),
    );
    peer.raw(all.subarray(0, -10));
    await until(() => heard.length === 2);
    peer.raw(all.subarray(-10));
    await until(() => uncaught.length === 3);
    assert.deepEqual([heard, uncaught], [["1", "2", "3"], ["1", "2", "3"]]);
  });

  test("a WebSocket whose listeners throw goes on, and comes to its end", async (t) => {
    const uncaught = uncaughtIn(t);
    const url = await serve(t, (peer) => {
      peer.raw(Buffer.concat([frame(1, "text"), frame(2, "bytes"), frame(1, "more"), frame(5, "")]));
    });
    const socket = new NodeWebSocket(url, ["mew.v0.4"]);
    const thrower = (what) => (event) => {
      throw new Error(`${what} ${event.data?.byteLength ?? event.data ?? event.code ?? ""}`.trim());
    };
    socket.onopen = (event) => {
      socket.send("join");
      thrower("open")(event);
    };
    [socket.onmessage, socket.onerror, socket.onclose] = ["message", "error", "close"].map(thrower);
    await until(() => uncaught.length >= 6);
    assert.deepEqual(uncaught, ["open", "message text", "message 5", "message more", "error", "close 1006"]);
  });

  test("a quiet gateway is asked whether it is there, and is not given up", async (t) => {
    const asked = [];
    const script = (peer) => {
      peer.welcome();
      behave(peer);
      const answer = peer.onmessage;
      peer.onmessage = (message) => {
        asked.push(message.kind);
        answer(message);
      };
    };
    const space = await joinScripted(t, script, { heartbeat: 300 });
    space.on("disconnected", ({ reason }) => assert.fail(reason));
    await until(() => asked.length >= 3);
    assert.deepEqual(new Set(asked), new Set(["stream/sync"]));
  });

  test("the token is offered as a subprotocol and stands nowhere else", async (t) => {
    let [headers, joined] = [];
    await joinScripted(t, (peer, join) => {
      [headers, joined] = [peer.headers, join];
      peer.welcome();
    });
    assert.equal(headers["sec-websocket-protocol"], "mew.v0.4, mew.join, mew.token.a-token");
    assert.deepEqual(joined, { type: "join", extensions: ["positions"] });
  });
});

suite("closing", () => {
  const waits = {
    "the next attempt is far away": { first: 1e9, most: 1e9 },
    "the gateway does not answer a join": { first: 0 },
  };
  for (const [what, reconnect] of Object.entries(waits)) {
    test(`ends everything, even if ${what}`, async (t) => {
      let connections = 0;
      const url = await serve(t, (peer) => {
        if (++connections > 1) return;
        peer.welcome();
        peer.destroy();
      });
      const script = fileURLToPath(new URL("closing.js", import.meta.url));
      const child = spawn("node", [script, url, JSON.stringify(reconnect)], { stdio: ["ignore", "pipe", "inherit"] });
      t.after(() => child.kill());
      const output = child.stdout.toArray();
      assert.deepEqual(await within(once(child, "exit"), "it has not ended"), [0, null]);
      assert.equal((await output).join(""), "closed\n");
    });
  }
});

suite("joins", () => {
  test("of something that is no gateway fail", async (t) => {
    const url = await serve(t, (peer) => peer.welcome({ epoch: undefined }));
    await assert.rejects(connect(url), JoinRefusedError);
    const silent = await serve(t, () => undefined);
    await assert.rejects(connect(silent, { connectTimeout: 100 }), /no welcome came within 100 ms/);
    const leaving = await serve(t, (peer) => peer.destroy());
    await assert.rejects(connect(leaving), ConnectError);
    const busy = await serve(t, (peer) => peer.close(4005));
    await assert.rejects(connect(busy), (error) => error.constructor === ConnectError);
    const refusing = await serve(t, (peer) => peer.close(4504));
    await assert.rejects(connect(refusing), { name: "JoinRefusedError", code: 4504 });
  });

  const answers = {
    "HTTP 403": "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
    "no HTTP": "220 mail.example ESMTP\r\n",
    "the wrong key":
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
    nothing: "",
  };
  for (const [what, answer] of Object.entries(answers)) {
    test(`answered with ${what} fail`, async (t) => {
      const server = createServer((socket) => {
        socket.on("error", () => undefined);
        socket.once("data", () => socket.end(answer));
      });
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      t.after(() => server.close());
      await assert.rejects(
        connect(`ws://127.0.0.1:${server.address().port}`),
        (error) => error.constructor === ConnectError,
      );
    });
  }

  test("of what is no address fail, and the error does not quote what may hold a secret", async () => {
    const addresses = [
      ...["me:HUNTER2@host:99999999", "ws://h o/#token=HUNTER2", "ws://h o/x?token=HUNTER2", "HUNTER2 TOKEN"],
      ...["ws://me:HUNTER2@h o/", "//HUNTER2@", "ws://127.0.0.1:HUNTER2", "ws://me:HUNTER2@h:1/", "ws://h:1/?token=HUNTER2"],
      ...["ws://127.0.0.1:1/?key=HUNTER2", "ws://127.0.0.1:1/#token=HUNTER2"],
    ];
    for (const address of addresses) {
      await assert.rejects(connect(address), (error) => {
        assert.equal(error.constructor, ConnectError);
        assert.doesNotMatch(`${error.stack} ${error.message}`, /HUNTER2/i, address);
        return true;
      });
    }
    await assert.rejects(connect("ws://h o"), /expected something like ws:\/\/127\.0\.0\.1:8080/);
  });
});
