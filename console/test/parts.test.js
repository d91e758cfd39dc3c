/** The small parts of the model. */

import assert from "node:assert/strict";
import { suite, test } from "node:test";

import { load, stream } from "./support.js";

const { chains } = await load("state/chains");
const { Clock } = await load("state/clock");
const { Density } = await load("state/density");
const { Figures } = await load("state/figures");
const { Tail } = await load("state/tail");
const { Tracks } = await load("state/tracks");
const { argumentsOf, fieldsOf, initialText } = await load("state/schema-form");
const { decode, preview, sizeOf } = await load("state/decode");
const { holds, matches, obstacleToManage } = await load("state/permits");
const { layout, placeOf, rowAt } = await load("timeline/rows");
const { live, pan, pause, ticks, zoom } = await load("state/window");
const { hashOf, routeOf } = await load("session/route");

const encoder = new TextEncoder();
const textFrame = (text) => ({ stream: "s1", isText: true, text, data: encoder.encode(text) });
const bytesFrame = (...data) => ({ stream: "s1", isText: false, data: Uint8Array.from(data) });

suite("how many frames came when", () => {
  const drawn = (density, from, to, width) => {
    const found = [];
    density.between(from, to, width, (at, wide, count) => found.push([at, wide, count]));
    return found;
  };

  test("is fine for what is new, and coarse for what is old", () => {
    const density = new Density();
    const begin = 1_700_000_000_000;
    for (let at = begin; at < begin + 3600_000; at += 100) density.add(at);
    assert.equal(density.total, 36_000);
    const end = begin + 3600_000;
    assert.ok(drawn(density, end - 10_000, end, 10).every(([, wide]) => wide === 50));
    const hour = drawn(density, begin, end - 1, 10);
    assert.ok(hour.every(([, wide]) => wide > 1000));
    assert.equal(hour.reduce((sum, [, , count]) => sum + count, 0), 36_000);
  });

  test("what is older than all buckets is forgotten, and late frames find their place", () => {
    const density = new Density();
    density.add(10_000_000);
    density.add(9_999_000);
    density.add(0);
    assert.deepEqual(density.perSecond(10_002_000, 4), [0, 1, 1, 0]);
    density.add(10_000_000 + 300 * 86_400_000);
    assert.deepEqual(drawn(density, 9_000_000, 10_100_000, 10), []);
  });
});

suite("what is shown of a frame", () => {
  test("JSON as a tree, text as text, bytes in hex", () => {
    assert.deepEqual(decode(textFrame('{"x":1}')), { form: "json", value: { x: 1 } });
    assert.deepEqual(decode(textFrame("hello")), { form: "text", text: "hello" });
    assert.deepEqual(decode(textFrame("17")), { form: "text", text: "17" });
    assert.equal(decode(bytesFrame(0xff, 0xfe, 0x41)).form, "hex");
    assert.match(decode(bytesFrame(0xff, 0xfe, 0x41)).lines[0], /^000000 {2}ff fe 41 +··A$/);
    assert.equal(decode(bytesFrame(0, 1, 2)).form, "hex");
    assert.deepEqual(decode(bytesFrame(...encoder.encode("[1]"))), { form: "json", value: [1] });
  });

  test("is little of a frame that is large", () => {
    const large = textFrame(JSON.stringify("x".repeat(1 << 20)));
    assert.equal(decode(large).form, "text");
    assert.ok(decode(large).text.length < 5000);
    assert.ok(preview(decode(large)).length <= 301);
    assert.ok(decode(bytesFrame(...new Uint8Array(100_000).fill(255))).lines.length < 50);
  });

  test("its size is that of UTF-8", () => {
    for (const text of ["", "abc", "äöü", "€", "😀", "a😀€ä"]) {
      assert.equal(sizeOf(textFrame(text)), encoder.encode(text).length, text);
    }
  });

  test("the tail holds a bounded number of bytes", () => {
    const tail = new Tail("s1");
    for (let n = 0; n < 400; n++) tail.add(textFrame(String(n)), n);
    assert.equal(tail.frames.length, 300);
    assert.equal(tail.frames[0].frame.text, "399");
    for (let n = 0; n < 20; n++) tail.add(textFrame("x".repeat(1 << 20)), n);
    assert.equal(tail.frames.length, 8);
    tail.add({ ...textFrame("another"), stream: "s2" }, 0);
    tail.pause(true);
    tail.add(textFrame("unseen"), 0);
    assert.deepEqual([tail.frames.length, tail.skipped], [8, 1]);
  });
});

suite("permits", () => {
  test("globs match as the gateway's do", () => {
    for (const [pattern, kind, expected] of [
      ["*", "stream/open", true],
      ["mcp/*", "mcp/request", true],
      ["mcp/*", "chat", false],
      ["*/request", "mcp/request", true],
      ["s*/m*s", "space/manage-streams", true],
      ["chat", "chat/acknowledge", false],
      ["a*a", "a", false],
    ]) {
      assert.equal(matches(pattern, kind), expected, `${pattern} ${kind}`);
    }
  });

  test("a negation wins", () => {
    assert.equal(holds([{ kind: "*" }, { kind: "!space/kick" }], "space/kick"), false);
    assert.equal(holds([{ kind: "*" }, { kind: "!space/kick" }], "chat"), true);
    assert.equal(holds([], "chat"), false);
  });

  test("owners and managers may change a stream, and others are told who may", () => {
    assert.equal(obstacleToManage({ me: "ann", capabilities: [] }, "ann"), undefined);
    assert.equal(obstacleToManage({ me: "bob", capabilities: [{ kind: "space/*" }] }, "ann"), undefined);
    assert.match(obstacleToManage({ me: "bob", capabilities: [{ kind: "stream/*" }] }, "ann"), /^only ann, who owns it/);
  });
});

test("writers are a tree, in which whoever holds a right from another is below it", () => {
  const delegations = [
    { participant: "bob", by: "ann", depth: 2 },
    { participant: "dee", by: "bob", depth: 1 },
    { participant: "eve", by: "dee", depth: 0 },
    { participant: "loop", by: "loop", depth: 1 },
  ];
  const found = chains(["ann", "eve", "dee", "bob", "cy", "loop"], delegations);
  assert.deepEqual(
    found.map(({ id, level }) => `${level} ${id}`),
    ["0 ann", "0 bob", "1 dee", "2 eve", "0 cy", "0 loop"],
  );
});

suite("forms of tools", () => {
  const schema = {
    type: "object",
    required: ["name", "height"],
    properties: {
      name: { type: "string", description: "who" },
      height: { type: "integer" },
      isHigh: { type: "boolean", default: true },
      how: { enum: ["fast", "slow"], default: "slow" },
      more: { type: "object" },
    },
  };

  test("make arguments of what was typed", () => {
    const fields = fieldsOf(schema);
    assert.deepEqual(fields.map(initialText), ["", "", "true", "1", ""]);
    assert.deepEqual(argumentsOf(fields, { name: "ann", height: "3", more: '{"a":[1]}' }), {
      ...{ name: "ann", height: 3, isHigh: true, how: "slow" },
      more: { a: [1] },
    });
  });

  test("say what is wrong", () => {
    const fields = fieldsOf(schema);
    assert.throws(() => argumentsOf(fields, { name: "ann" }), /^Error: height is needed$/);
    assert.throws(() => argumentsOf(fields, { name: "ann", height: "3.5" }), /expected a whole number/);
    assert.throws(() => argumentsOf(fields, { name: "ann", height: "3", more: "{" }), /is not JSON/);
  });

  test("take anything for a schema", () => {
    for (const odd of [undefined, null, 7, [], { properties: [] }, { properties: { x: null } }]) fieldsOf(odd);
  });
});

suite("the window of time", () => {
  test("moves along until somebody stops it", () => {
    const stopped = pause({ length: 1000 }, 5000);
    assert.deepEqual(stopped, { length: 1000, end: 5000 });
    assert.deepEqual(pan(stopped, -1, 9000), { length: 1000, end: 4000 });
    assert.deepEqual(pan(stopped, 10, 9000), { length: 1000 });
    assert.deepEqual(live(stopped), { length: 1000 });
  });

  test("zooms around a place, within bounds", () => {
    assert.deepEqual(zoom({ length: 60_000 }, 0.5, 100_000), { length: 30_000 });
    assert.deepEqual(zoom({ length: 60_000, end: 90_000 }, 0.5, 100_000, 0), { length: 30_000, end: 60_000 });
    assert.equal(zoom({ length: 60_000 }, 1e-9, 0).length, 2000);
    assert.equal(zoom({ length: 60_000 }, 1e9, 0).length, 86_400_000);
  });

  test("has round times on its axis", () => {
    const found = ticks(1_700_000_001_234, 1_700_000_061_234, 6);
    assert.deepEqual(found.slice(0, 2), [1_700_000_010_000, 1_700_000_020_000]);
    assert.ok(found.length <= 6);
  });
});

suite("rows", () => {
  test("streams with their lanes, the owner first, and nothing that was over before", () => {
    const tracks = new Tracks();
    tracks.opened(stream("old"), 0).end({ at: 10, how: "closed" });
    const hero = tracks.opened(stream("hero", { owner: "zoe", writers: ["bob", "zoe"] }), 0);
    hero.lane("ann").rights.set(true, 5);
    hero.lane("ann").rights.set(false, 50);
    const found = layout(tracks.all, 100, new Set());
    const names = found.rows.map((row) => (row.kind === "lane" ? row.lane.participant : (row.track?.id ?? "-")));
    assert.deepEqual(names, ["-", "hero", "zoe", "bob"]);
    assert.equal(rowAt(found, found.rows[2].top + 1), found.rows[2]);
    const mark = { at: 0, number: 1, kind: "granted", stream: "hero" };
    assert.equal(placeOf({ ...mark, who: "bob" }, found), found.rows[3]);
    assert.equal(placeOf({ ...mark, who: "nobody" }, found), found.rows[1]);
    assert.equal(placeOf({ ...mark, kind: "chat", stream: undefined }, found), found.rows[0]);
    assert.equal(placeOf({ ...mark, stream: "old" }, found), undefined);
    assert.equal(layout(tracks.all, 100, new Set(["hero"])).rows.length, 2);
  });
});

test("figures become rates, over a restart and with an answer that comes twice", () => {
  const figures = new Figures();
  const sample = { memory: 1, connections: 1, bytes: 0, deliveries: 0, dropped: 0 };
  figures.add({ ...sample, at: 1000, cpuSeconds: 1, frames: 100 });
  figures.add({ ...sample, at: 2000, cpuSeconds: 1.5, frames: 160 });
  figures.add({ ...sample, at: 2000, cpuSeconds: 1.5, frames: 160 });
  assert.deepEqual(
    figures.rates.map(({ cpu, frames }) => [cpu, frames]),
    [[0.5, 60]],
  );
  figures.add({ ...sample, at: 3000, cpuSeconds: 0.1, frames: 0 });
  assert.deepEqual(figures.rates, []);
});

test("a clock that is wrong is put right", () => {
  const clock = new Clock();
  const ts = (at) => new Date(at).toISOString();
  assert.equal(clock.at(ts(100_000), 100_040), 100_000);
  const wrong = new Clock();
  assert.equal(wrong.at(ts(500_000), 100_000), 100_000);
  assert.equal(wrong.at(ts(501_000), 101_000), 101_000);
  assert.equal(wrong.at("nonsense", 7), 7);
});

test("a view has an address, whatever the name in it", () => {
  assert.deepEqual(routeOf(hashOf("streams", "<b>/#%")), { view: "streams", chosen: "<b>/#%" });
  assert.deepEqual(routeOf("#/nothing"), { view: "timeline" });
  assert.deepEqual(routeOf("#/streams/%E0%A4%A"), { view: "streams" });
});
