/** The model: what the page knows of a space, folded from the events of the client. */

import assert from "node:assert/strict";
import { suite, test } from "node:test";

import { load, message, right, spans, stream } from "./support.js";

const { Model } = await load("state/model");
const { sentence } = await load("state/marks");
const { costOf } = await load("state/outages");

/** A model of a space with these streams, whose state tests change as a gateway would. */
function watching(...streams) {
  const known = { streams: new Map(streams.map((each) => [each.id, each])), participants: new Map() };
  return { model: new Model("me", [], known, 1000), known };
}

const lane = (model, id, participant) => model.tracks.get(id).lanes.get(participant);
const told = (model) => model.marks.map((mark) => sentence(mark, (id) => model.title(id)));

suite("rights over time", () => {
  test("a grant and a revoke are an interval", () => {
    const { model } = watching(stream("s1", { alias: "hero" }));
    model.apply(right("writeGranted", "s1", "bob", ["ann", "bob"], { reason: "your turn" }), 2000);
    model.apply(right("writeRevoked", "s1", "bob", ["ann"]), 3000);
    assert.deepEqual(spans(lane(model, "s1", "bob").rights), [[2000, 3000]]);
    assert.deepEqual(spans(lane(model, "s1", "ann").rights), [[1000, undefined]]);
    assert.deepEqual(told(model), [
      "ann let bob write to hero (your turn)",
      "ann took the right to write to hero from bob",
    ]);
  });

  test("a transfer ends what the previous owner had", () => {
    const { model } = watching(stream("s1"));
    const payload = { authorized_writers: ["bob"] };
    const transferred = { type: "ownershipTransferred", stream: "s1", previousOwner: "ann", newOwner: "bob", by: "ann" };
    model.apply({ ...transferred, message: message("stream/ownership-transferred", payload) }, 2000);
    assert.deepEqual(spans(lane(model, "s1", "ann").owned), [[1000, 2000]]);
    assert.deepEqual(spans(lane(model, "s1", "ann").rights), [[1000, 2000]]);
    assert.deepEqual(spans(lane(model, "s1", "bob").owned), [[2000, undefined]]);
  });

  test("a replayed grant is an interval although it is over by now", () => {
    const { model } = watching(stream("s1")); // bob is no writer in the state after the replay
    model.apply(right("writeGranted", "s1", "bob", ["ann", "bob"]), 2000);
    assert.deepEqual(spans(lane(model, "s1", "bob").rights), [[2000, undefined]]);
    model.apply(right("writeRevoked", "s1", "bob", ["ann"]), 2500);
    assert.deepEqual(spans(lane(model, "s1", "bob").rights), [[2000, 2500]]);
  });

  test("the end of a stream is the end of every right", () => {
    const { model, known } = watching(stream("s1", { writers: ["ann", "bob"] }));
    known.streams.delete("s1");
    model.apply(
      { type: "streamClosed", stream: "s1", how: "closed", by: "ann", reason: "over", message: message("stream/close") },
      2000,
    );
    assert.equal(model.tracks.get("s1").isOpen, false);
    assert.deepEqual(spans(lane(model, "s1", "bob").rights), [[1000, 2000]]);
    assert.deepEqual(told(model), ["ann ended s1 (over)"]);
  });

  test("where nothing was recovered, the state of now is taken over", () => {
    const s1 = stream("s1");
    const { model } = watching(s1);
    model.apply({ type: "disconnected", reason: "gone" }, 2000);
    s1.writers = ["bob"];
    s1.owner = "bob";
    model.apply({ type: "resumed", recovered: false, reason: "too long ago", unconfirmed: 0 }, 5000);
    assert.deepEqual(spans(lane(model, "s1", "ann").rights), [[1000, 5000]]);
    assert.deepEqual(spans(lane(model, "s1", "bob").owned), [[5000, undefined]]);
    assert.match(costOf(model.outages.newest), /^Away for 3\.0 s\. What happened meanwhile is not known: too long ago\./);
  });
});

suite("frames", () => {
  test("are counted by writer", () => {
    const { model } = watching(stream("s1"));
    for (let n = 0; n < 30; n++) model.frame({ stream: "s1", writer: n % 3 ? "ann" : "bob", gap: 0, seq: n }, 10, 2000 + n);
    assert.equal(lane(model, "s1", "ann").density.total, 20);
    assert.equal(lane(model, "s1", "bob").density.total, 10);
    assert.equal(model.tracks.get("s1").bytes, 300);
  });

  test("that are missing are counted too, and those of unknown streams are no trouble", () => {
    const { model } = watching(stream("s1"));
    model.frame({ stream: "s1", writer: "ann", gap: 7, seq: 1 }, 1, 2000);
    model.frame({ stream: "nothing", writer: "ann", gap: 0, seq: 2 }, 1, 2000);
    assert.equal(model.tracks.get("s1").missed, 7);
  });
});

suite("what was missed", () => {
  test("is counted by position", () => {
    const { model } = watching(stream("s1"));
    model.apply({ type: "disconnected", reason: "gone" }, 2000);
    assert.equal(model.outages.isOut, true);
    model.apply({ type: "resumed", recovered: true, fromSeq: 501, toSeq: 503, unconfirmed: 0 }, 4500);
    model.apply({ type: "chat", sender: "bob", text: "hi", message: message("chat", {}, { seq: 501 }) }, 2500);
    model.frame({ stream: "s1", writer: "ann", gap: 0, seq: 502 }, 1, 4500);
    model.frame({ stream: "s1", writer: "ann", gap: 0, seq: 503 }, 1, 4500);
    model.frame({ stream: "s1", writer: "ann", gap: 0, seq: 504 }, 1, 4600);
    assert.equal(
      costOf(model.outages.newest),
      "Away for 2.5 s, and missed 1 event and 2 frames: all of it has come since.",
    );
  });

  test("may be nothing", () => {
    const { model } = watching();
    model.apply({ type: "disconnected", reason: "gone" }, 2000);
    model.apply({ type: "resumed", recovered: true, fromSeq: 501, toSeq: 500, unconfirmed: 0 }, 2500);
    assert.equal(costOf(model.outages.newest), "Away for 0.5 s. Nothing was missed.");
  });
});

suite("people", () => {
  const presence = (event, id) => message("system/presence", { event, participant: { id } });

  test("come, lose their connection, and go", () => {
    const { model } = watching();
    model.apply({ type: "joined", participant: "bob", capabilities: [{ kind: "chat" }], message: message("") }, 2000);
    assert.equal(model.people.get("bob").presence, "here");
    model.apply({ type: "message", message: presence("suspended", "bob") }, 2500);
    assert.equal(model.people.get("bob").presence, "suspended");
    model.apply({ type: "message", message: presence("resumed", "bob") }, 2600);
    assert.equal(model.people.get("bob").presence, "here");
    model.apply({ type: "left", participant: "bob", message: message("") }, 3000);
    assert.equal(model.people.get("bob").presence, "gone");
    assert.deepEqual(told(model), ["bob joined", "bob lost the connection", "bob joined", "bob left"]);
  });

  test("are paused, and nobody can forge that somebody is away", () => {
    const { model } = watching();
    model.apply({ type: "joined", participant: "bob", capabilities: [], message: message("") }, 2000);
    const pause = message("participant/pause", { reason: "wait" }, { from: "ann", to: ["bob"] });
    model.apply({ type: "message", message: pause }, 2100);
    assert.equal(model.people.get("bob").isPaused, true);
    model.apply({ type: "message", message: { ...presence("suspended", "bob"), from: "mallory" } }, 2200);
    assert.equal(model.people.get("bob").presence, "here");
  });

  test("who are listed are not here, unless they are", () => {
    const { model } = watching();
    model.people.listed("me", true, [{ kind: "*" }]);
    model.people.listed("old", false, []);
    assert.deepEqual(
      model.people.all.map(({ id, presence }) => [id, presence]),
      [
        ["me", "here"],
        ["old", "gone"],
      ],
    );
  });
});

suite("the inbox", () => {
  const proposal = {
    ...{ type: "proposed", proposal: "p1", sender: "scout", method: "tools/call", to: ["ann"] },
    ...{ params: { name: "jump", arguments: { height: 3 } }, message: message("mcp/proposal") },
  };

  test("a proposal waits until somebody fulfils it", () => {
    const { model } = watching();
    model.apply(proposal, 2000);
    assert.equal(model.inbox.waiting, 1);
    const request = message("mcp/request", {}, { from: "ann", correlationId: ["p1"] });
    model.apply({ type: "requested", sender: "ann", method: "tools/call", params: {}, to: [], message: request }, 3000);
    const [entry] = model.inbox.proposals;
    assert.deepEqual([entry.state, entry.by, model.inbox.waiting], ["fulfilled", "ann", 0]);
    assert.deepEqual(told(model), ['scout proposes jump({"height":3})', "ann approved a proposal of scout"]);
  });

  test("or rejects it, which counts once", () => {
    const { model } = watching();
    model.apply(proposal, 2000);
    const rejected = { type: "proposalRejected", proposal: "p1", reason: "no", message: message("mcp/reject") };
    model.apply({ ...rejected, by: "ann" }, 3000);
    model.apply({ ...rejected, by: "bob" }, 3100);
    const [entry] = model.inbox.proposals;
    assert.deepEqual([entry.state, entry.by, entry.reason], ["rejected", "ann", "no"]);
  });
});

suite("everything is bounded", () => {
  test("marks, messages, proposals, streams and lanes", () => {
    const { model, known } = watching();
    for (let n = 0; n < 20_000; n++) {
      model.apply({ type: "chat", sender: "bob", text: "hi", message: message("chat") }, n);
    }
    for (let n = 0; n < 1000; n++) {
      const each = stream(`s${n}`, { writers: ["ann", ...Array.from({ length: 3 }, (_, who) => `w${who}`)] });
      known.streams.set(each.id, each);
      model.apply({ type: "streamOpened", stream: each, message: message("stream/open") }, n);
      model.apply({ type: "streamClosed", stream: each.id, how: "closed", message: message("stream/close") }, n);
      const proposed = { type: "proposed", proposal: `p${n}`, sender: "x", method: "m", params: {}, to: [] };
      model.apply({ ...proposed, message: message("mcp/proposal") }, n);
    }
    known.streams.clear();
    const many = stream("many", { writers: Array.from({ length: 1000 }, (_, n) => `w${n}`) });
    model.apply({ type: "streamOpened", stream: many, message: message("stream/open") }, 1);
    for (let n = 0; n < 5000; n++) model.people.become(`p${n}`, "gone", n);
    assert.ok(model.marks.length <= 5000);
    assert.ok(model.inbox.said.length <= 500);
    assert.ok(model.inbox.proposals.length <= 300);
    assert.ok(model.tracks.all.length <= 202);
    assert.ok(model.tracks.get("many").lanes.size <= 256);
    assert.ok(model.people.all.length <= 1001);
  });
});
