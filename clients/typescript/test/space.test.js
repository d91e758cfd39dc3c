/** What participants do in a space, over a real gateway. */

import assert from "node:assert/strict";
import { suite, test } from "node:test";
import * as node from "node:test";

import {
  AlreadyExistsError,
  CapabilityViolationError,
  connect,
  ConnectError,
  FormatViolationError,
  InvalidOperationError,
  JoinRefusedError,
  McpError,
  ParticipantNotFoundError,
  ProposalRejectedError,
  RefusedError,
  RequestTimeoutError,
  StreamNotFoundError,
  TargetNotFoundError,
  UnauthorizedError,
  UnauthorizedStreamWriteError,
} from "mewstream";
import { event, python, strangeTokenOf, take, tokenOf, until, useGateway } from "./support.js";

const { gateway, join } = useGateway(node, {
  participants: ["ann", "bob", "cy", "dee"],
  capabilities: { dee: [{ kind: "chat" }, { kind: "mcp/proposal" }, { kind: "mcp/withdraw" }] },
});

suite("views", () => {
  test("know what was there before, and follow what changes", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open({ description: "the hero", metadata: { level: 3 }, desiredId: "hero" });
    const [bob] = await join("bob");
    assert.deepEqual([...bob.participants.keys()], ["ann"]);
    const seen = bob.streams.get("hero");
    assert.equal(seen, bob.streams.get(stream.id));
    assert.deepEqual([seen.owner, seen.alias, seen.isMine, seen.status], ["ann", "hero", false, "live"]);
    assert.deepEqual([seen.description, seen.metadata.level, seen.namespace], ["the hero", 3, `demo/${stream.id}`]);
    assert.equal(stream.isMine, true);

    const changes = [];
    for (const type of ["added", "changed", "removed"]) bob.streams.on(type, (each) => changes.push([type, each.id]));
    await stream.grant("bob");
    await until(() => seen.writers.includes("bob"));
    const other = await ann.open();
    await other.close();
    await until(() => changes.some(([type]) => type === "removed"));
    assert.deepEqual(changes, [
      ["changed", stream.id],
      ["added", other.id],
      ["removed", other.id],
    ]);

    const people = [];
    for (const type of ["added", "removed"]) ann.participants.on(type, ({ id }) => people.push([type, id]));
    const [cy] = await join("cy");
    await cy.close();
    await until(() => people.length === 2);
    assert.deepEqual(people, [
      ["added", "cy"],
      ["removed", "cy"],
    ]);
    await stream.close();
  });

  test("of a welcome without room for everything are complete", async () => {
    const [ann] = await join("ann");
    const metadata = { filler: "x".repeat(30_000) };
    const streams = await Promise.all(Array.from({ length: 50 }, () => ann.open({ metadata })));
    const [bob] = await join("bob");
    assert.deepEqual([...bob.streams.keys()].sort(), streams.map(({ id }) => id).sort());
    await Promise.all(streams.map((stream) => stream.close()));
  });

  test("a listener that throws is reported and disturbs nothing", async (t) => {
    const [ann, bob] = await join("ann", "bob");
    // The runner itself listens to this, and would fail the test.
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    t.after(() => others.forEach((each) => process.on("uncaughtException", each)));
    const uncaught = new Promise((resolve) => process.once("uncaughtException", resolve));
    bob.on("chat", () => {
      throw new Error("of a listener");
    });
    const heard = event(bob, "chat");
    await ann.chat("hello");
    assert.equal((await heard).text, "hello");
    assert.equal((await uncaught).message, "of a listener");
  });
});

suite("frames", () => {
  test("text, JSON and bytes arrive as what they were", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.open();
    const frames = bob.subscribe(stream.id);
    await until(() => bob.streams.has(stream.id));
    await stream.send("a#b|c ü");
    await stream.send({ x: 1 });
    await stream.send(new Uint8Array([0, 35, 255]));
    await stream.send("");
    const [text, json, bytes, empty] = await take(frames, 4);
    assert.deepEqual([text.text, text.isText, text.writer, text.stream], ["a#b|c ü", true, "ann", stream.id]);
    assert.deepEqual(text.data, new TextEncoder().encode("a#b|c ü"));
    assert.deepEqual(json.json(), { x: 1 });
    assert.deepEqual([bytes.data, bytes.isText], [new Uint8Array([0, 35, 255]), false]);
    assert.throws(() => bytes.text, FormatViolationError);
    assert.throws(() => text.json(), FormatViolationError);
    assert.equal(empty.text, "");
    assert.ok(text.seq < json.seq && json.seq < bytes.seq && Number.isSafeInteger(bytes.seq));
    assert.equal(bob.position.seq, empty.seq);
    await stream.close();
    assert.equal((await frames.next()).done, true);
  });

  test("a subscription by alias may come before its stream, and one of all streams gets everything", async () => {
    const [ann, bob] = await join("ann", "bob");
    const [early, all] = [bob.subscribe("later"), bob.subscribe()];
    const [one, two] = [await ann.open({ desiredId: "later" }), await ann.open()];
    await one.send("1");
    await two.send("2");
    assert.deepEqual(
      (await take(all, 2)).map((each) => each.text),
      ["1", "2"],
    );
    assert.deepEqual(
      (await take(early, 1)).map((each) => each.text),
      ["1"],
    );
    await Promise.all([one.close(), two.close()]);
    assert.equal((await early.next()).done, true);
    all.close();
  });

  test("of a stream that is not open yet can be waited for", async () => {
    const [ann, bob] = await join("ann", "bob");
    const waiting = bob.stream("soon");
    await assert.rejects(bob.stream("never", { timeout: 20 }), RequestTimeoutError);
    const opened = await ann.open({ desiredId: "soon" });
    assert.equal((await waiting).id, opened.id);
    assert.equal(await bob.stream("soon"), await waiting);
    const late = assert.rejects(bob.stream("never"), { name: "ConnectionClosedError" });
    await opened.close();
    await bob.close();
    await late;
  });

  test("leaving the loop ends the subscription", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open();
    const frames = stream.subscribe();
    await stream.send("1");
    for await (const frame of frames) {
      assert.equal(frame.text, "1");
      break;
    }
    await stream.send("2");
    await stream.flush();
    assert.equal(frames.pending, 0);
    await stream.close();
    for await (const frame of stream.subscribe()) assert.fail(`${frame.text} of a closed stream`);
  });

  test("a reader that is too slow loses the oldest, or all but the newest, and is told how many", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open();
    const [oldest, latest] = [stream.subscribe({ maxPending: 10 }), stream.subscribe({ onSlow: "latest" })];
    for (let number = 0; number < 100; number++) await stream.send(String(number));
    await stream.flush();
    assert.deepEqual([oldest.pending, oldest.dropped, latest.pending, latest.dropped], [10, 90, 1, 99]);
    const [first, second] = await take(oldest, 2);
    assert.deepEqual([first.text, first.gap, second.text, second.gap], ["90", 90, "91", 0]);
    const [newest] = await take(latest, 1);
    assert.deepEqual([newest.text, newest.gap], ["99", 99]);
    assert.throws(() => stream.subscribe({ onSlow: "pause" }), TypeError);
    assert.throws(() => stream.subscribe({ maxPending: 0 }), RangeError);
    await stream.close();
  });

  test("what is not allowed is refused, here or by the gateway", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.open();
    await until(() => bob.streams.has(stream.id));
    const theirs = bob.streams.get(stream.id);
    await assert.rejects(theirs.send("no"), UnauthorizedStreamWriteError);
    await stream.grant("bob", { maxFrames: 1 });
    await theirs.send("yes"); // the grant may still be on its way
    const revoked = event(bob, "writeRevoked");
    await theirs.send("one too many").catch(() => undefined); // the revoke may have come before it
    await revoked;
    await assert.rejects(
      theirs.flush().then(() => theirs.send("no")),
      UnauthorizedStreamWriteError,
    );
    await stream.close();
    await assert.rejects(stream.send("no"), StreamNotFoundError);
  });

  test("a frame that the gateway refuses fails the next flush, and is an event", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.open({ formats: [{ id: "n", schema: { type: "number" } }], enforceFormats: true });
    const refused = event(ann, "refused");
    await stream.send({ not: "a number" });
    await assert.rejects(stream.flush(), FormatViolationError);
    assert.equal((await refused).error.details.stream_id, stream.id);
    await stream.send(1);
    await stream.flush();
    const [format] = bob.streams.get(stream.id).formats;
    assert.deepEqual([format.id, format.schema], ["n", { type: "number" }]);
    assert.match(format.schemaHash, /^[0-9a-f]{64}$/);
    await stream.close();
  });

  test("many are sent in order, and all are confirmed", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.open();
    const frames = bob.subscribe(stream.id, { maxPending: 50_000 });
    for (let number = 0; number < 20_000; number++) await stream.send(String(number));
    await ann.flush();
    const received = await take(frames, 20_000);
    assert.deepEqual(
      received.map((each) => each.text),
      Array.from({ length: 20_000 }, (_, number) => String(number)),
    );
    await stream.close();
  });
});

suite("announced streams", () => {
  test("are ready, live and completed, and number their frames", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.announce({ desiredId: "moves", intent: "to show" });
    const frames = bob.subscribe("moves");
    assert.deepEqual([stream.status, stream.isAnnounced], ["ready", true]);
    await assert.rejects(stream.send(1), InvalidOperationError);
    await stream.start();
    await stream.send({ x: 1 });
    await stream.send(new Uint8Array([1]));
    await stream.send({ x: 2 });
    const [first, raw, second] = await take(frames, 3);
    assert.deepEqual([first.json(), first.sequence, first.gap], [{ x: 1 }, 1, 0]);
    assert.deepEqual([raw.data, raw.sequence], [new Uint8Array([1]), undefined]);
    assert.deepEqual([second.sequence, second.gap], [2, 0]);
    await assert.rejects(stream.send(new Uint8Array(), { numbered: true }), TypeError);
    const closed = event(bob, "streamClosed");
    await stream.complete();
    assert.equal((await closed).how, "completed");
    assert.equal(stream.status, "completed");
  });

  test("may fail, with a code", async () => {
    const [ann, bob] = await join("ann", "bob");
    const stream = await ann.announce({ formats: [{ id: "a", mimeType: "text/plain" }, { id: "b" }] });
    await stream.start();
    const frames = bob.subscribe(stream.id);
    await stream.send("text", { format: "a" });
    const [frame] = await take(frames, 1);
    assert.deepEqual([frame.formatId, frame.json()], ["a", "text"]);
    const closed = event(bob, "streamClosed");
    await stream.fail("broken", "it is broken");
    assert.deepEqual([(await closed).how, (await closed).reason], ["failed", "it is broken"]);
  });
});

suite("rights", () => {
  test("are granted with conditions, revoked and transferred, and everyone is told", async () => {
    const [ann, bob, cy] = await join("ann", "bob", "cy");
    const stream = await ann.open();
    await until(() => cy.streams.has(stream.id));
    const told = [];
    cy.on("*", (each) => told.push(each));
    const expiresAt = new Date(Date.now() + 3_600_000);
    await stream.grant("bob", { reason: "your turn", expiresAt, maxFrames: 5 });
    const conditions = stream.conditions.get("bob");
    assert.deepEqual([Date.parse(conditions.expiresAt), conditions.maxFrames], [expiresAt.getTime(), 5]);
    await stream.revoke("bob", { reason: "enough" });
    assert.deepEqual([stream.writers, stream.conditions.size], [["ann"], 0]);
    await stream.revokeRead("bob");
    assert.deepEqual(stream.readers.sort(), ["ann", "cy"]);
    await stream.grantRead("bob");
    await stream.transfer("bob", { retainWrite: true });
    assert.deepEqual([stream.owner, stream.writers], ["bob", ["bob", "ann"]]);
    await until(() => told.some(({ type }) => type === "ownershipTransferred"));
    const rights = told.filter(({ type }) => type !== "message");
    assert.deepEqual(
      rights.map(({ type, reason }) => [type, reason]),
      [
        ["writeGranted", "your turn"],
        ["writeRevoked", "enough"],
        ["readRevoked", undefined],
        ["readGranted", undefined],
        ["ownershipTransferred", undefined],
      ],
    );
    assert.ok(rights.every(({ message }) => Number.isSafeInteger(message.seq)));
    await until(() => bob.streams.get(stream.id).isMine);
    await bob.streams.get(stream.id).close();
  });

  test("are asked for, denied, given and handed over, and everyone is told", async () => {
    const [ann, bob, cy] = await join("ann", "bob", "cy");
    const stream = await ann.open();
    const bobs = await bob.stream(stream.id);
    const cys = await cy.stream(stream.id);
    let told = event(cy, "writeRequested");
    await bobs.ask({ reason: "let me" });
    const { participant, reason } = await told;
    assert.deepEqual([participant, reason], ["bob", "let me"]);
    await bobs.ask({ reason: "please" });
    assert.deepEqual(
      bobs.writeRequests.map((each) => [each.participant, each.reason]),
      [["bob", "please"]],
    );
    told = event(bob, "writeDenied");
    await stream.denyWrite("bob", { reason: "not now" });
    assert.deepEqual([(await told).by, bobs.writeRequests], ["ann", []]);
    await assert.rejects(stream.denyWrite("bob"), InvalidOperationError);

    await cys.ask();
    await stream.handOver("cy"); // nobody writes beside the owner: it is a grant
    assert.deepEqual([stream.writers, stream.writeRequests], [["ann", "cy"], []]);
    await stream.handOver("bob");
    assert.deepEqual(stream.writers, ["ann", "bob"]);
    await assert.rejects(stream.grant("cy", { replaces: "nobody" }), InvalidOperationError);
    await stream.grant("cy");
    await assert.rejects(stream.handOver("dee"), RangeError);

    await stream.revoke("bob");
    await bobs.ask();
    const gone = event(ann, "left", (happened) => happened.participant === "bob");
    await bob.close();
    await gone;
    assert.deepEqual(stream.writeRequests, []);
    await stream.close();
  });

  test("are delegated: a chain is told, and falls with its beginning", async () => {
    const [ann, dee, cy] = await join("ann", "dee", "cy"); // of a manager like bob, nobody would hold it in a chain
    const stream = await ann.open();
    const dees = await dee.stream(stream.id);
    const cys = await cy.stream(stream.id);
    await stream.grant("dee", { delegate: { depth: 1, maxWriters: 1 } });
    await until(() => dees.delegations.length === 1);
    await dees.grant("cy");
    assert.deepEqual(dees.delegations, [
      { participant: "dee", by: "ann", depth: 1 },
      { participant: "cy", by: "dee", depth: 0 },
    ]);
    await assert.rejects(dees.grant("ann"), RefusedError);
    const fallen = event(cy, "writeRevoked", ({ participant }) => participant === "cy");
    await stream.revoke("dee");
    assert.equal((await fallen).reason, "delegation_ended");
    assert.deepEqual([cys.delegations, cys.writers], [[], ["ann"]]);
    await stream.close();
  });

  test("that one has not are errors of their own class", async () => {
    const [ann, dee] = await join("ann", "dee");
    const stream = await ann.open();
    await until(() => dee.streams.has(stream.id));
    await assert.rejects(dee.streams.get(stream.id).grant("dee"), UnauthorizedError);
    await assert.rejects(dee.open(), CapabilityViolationError);
    await assert.rejects(stream.grant("nobody"), ParticipantNotFoundError);
    await assert.rejects(ann.open({ target: ["nobody"] }), (error) => {
      assert.ok(error instanceof TargetNotFoundError && error instanceof RefusedError);
      assert.deepEqual(
        [error.code, error.name, error.details.targets],
        ["target_not_found", "TargetNotFoundError", ["nobody"]],
      );
      return true;
    });
    await stream.close();
    await assert.rejects(stream.close(), StreamNotFoundError);
  });
});

suite("messages", () => {
  test("reach everyone", async () => {
    const [ann, bob] = await join("ann", "bob");
    const [chat, other] = [event(bob, "chat"), event(bob, "message")];
    const sent = await ann.chat("hello", { to: "bob" });
    assert.deepEqual([sent.from, sent.to, (await chat).text], ["ann", ["bob"], "hello"]);
    await ann.send("reasoning/start", { about: 1 }, { context: "a/b", correlationId: sent.id });
    const { message } = await other;
    assert.deepEqual([message.kind, message.context, message.correlationId], ["reasoning/start", "a/b", [sent.id]]);
  });

  test("of MCP: tools are listed and called, and fail as they should", async () => {
    const [ann, bob] = await join("ann", "bob");
    const options = { description: "Walk.", inputSchema: { type: "object", required: ["steps"] } };
    ann.tool("walk", options, ({ steps }, sender) => ({ x: steps, for: sender }));
    ann.tool("say", {}, async () => "done");
    ann.tool("fail", {}, () => {
      throw new McpError("no", 7, { why: 1 });
    });
    ann.tool("break", {}, () => {
      throw new Error("oh");
    });
    const { tools } = await bob.request("tools/list", undefined, { to: "ann" });
    assert.deepEqual(tools[0], { name: "walk", ...options });
    const walked = await bob.callTool("walk", { steps: 3 }, { to: "ann" });
    assert.deepEqual(walked.structuredContent, { x: 3, for: "bob" });
    assert.deepEqual(await bob.callTool("say", {}, { to: "ann" }), { content: [{ type: "text", text: "done" }] });
    await assert.rejects(bob.callTool("fail", {}, { to: "ann" }), { code: 7, message: "no", data: { why: 1 } });
    await assert.rejects(bob.callTool("break", {}, { to: "ann" }), { code: -32603, message: "Error: oh" });
    await assert.rejects(bob.callTool("fly", {}, { to: "ann" }), { name: "McpError", code: -32601 });
    await assert.rejects(bob.request("other", {}, { to: "ann", timeout: 50 }), RequestTimeoutError);
    let responded;
    ann.on("requested", (request) => (responded = ann.respond(request, { it: 1 })));
    assert.deepEqual(await bob.request("other", {}, { to: ["ann"] }), { it: 1 });
    await responded;
  });

  test("of MCP: nobody answers in another's place", async () => {
    const [ann, bob, cy] = await join("ann", "bob", "cy");
    let forged, responded;
    cy.on("requested", (request) => (forged = cy.respond(request, "forged")));
    ann.on("requested", async (request) => {
      await until(() => forged);
      await forged;
      responded = ann.respond(request, "true");
    });
    assert.equal(await bob.request("question", {}, { to: "ann" }), "true");
    await responded;
  });

  test("proposals are fulfilled, rejected and withdrawn", async () => {
    const [ann, dee] = await join("ann", "dee");
    ann.tool("walk", {}, ({ steps }) => ({ x: steps }));
    const stop = ann.on("proposed", (proposed) => ann.fulfil(proposed));
    const proposal = await dee.propose("tools/call", { name: "walk", arguments: { steps: 2 } }, { to: "ann" });
    assert.deepEqual((await proposal.result()).structuredContent, { x: 2 });
    assert.equal(proposal.isSettled, true);
    stop();
    const proposed = event(ann, "proposed");
    const second = await dee.propose("tools/call", {}, { to: "ann" });
    await assert.rejects(second.result({ timeout: 20 }), RequestTimeoutError);
    await ann.reject(await proposed, { reason: "no" });
    await assert.rejects(second.result(), (error) => error instanceof ProposalRejectedError && error.by === "ann");
    const withdrawn = event(ann, "proposalWithdrawn");
    const third = await dee.propose("tools/call");
    await third.withdraw();
    await assert.rejects(third.result(), ProposalRejectedError);
    assert.deepEqual([(await withdrawn).proposal, (await withdrawn).by], [third.id, "dee"]);
    await assert.rejects(ann.fulfil({ ...(await proposed), to: [] }), TypeError);
  });
});

suite("people", () => {
  test("are invited, and kicked", async () => {
    const [ann] = await join("ann");
    const invitation = await ann.invite("guest", { capabilities: [{ kind: "chat" }] });
    assert.deepEqual([invitation.participant, invitation.token.length > 20], ["guest", true]);
    const guest = await connect(gateway.url, { token: invitation.token });
    assert.equal(guest.participant, "guest");
    await assert.rejects(ann.invite("guest"), AlreadyExistsError);
    await ann.kick("guest");
    assert.equal((await guest.closed).code, 4501);
    await assert.rejects(guest.chat("still here"), { name: "ConnectionClosedError", code: 4501 });
    await assert.rejects(guest.subscribe().next(), { name: "ConnectionClosedError" });
  });

  test("are granted capabilities, which they acknowledge", async () => {
    const [ann, dee] = await join("ann", "dee");
    const acknowledged = event(ann, "message", ({ message }) => message.kind === "capability/grant-ack");
    const changed = event(dee, "capabilitiesChanged");
    const grant = await ann.grantCapabilities("dee", [{ kind: "stream/request" }]);
    assert.ok((await changed).capabilities.some(({ kind }) => kind === "stream/request"));
    assert.deepEqual((await acknowledged).message.correlationId, [grant]);
    const stream = await dee.open();
    await stream.close();
    await ann.revokeCapabilities("dee", grant);
    await assert.rejects(dee.open(), CapabilityViolationError);
    await ann.grantCapabilities("dee", [{ kind: "stream/request" }]);
    await ann.revokeCapabilities("dee", [{ kind: "stream/*" }]);
    await assert.rejects(dee.open(), CapabilityViolationError);
  });
});

suite("connecting", () => {
  test("needs a token that the gateway knows, and never puts it into the URL", async () => {
    const wrong = connect(gateway.url, { participant: "ann", token: "wrong" });
    await assert.rejects(wrong, (error) => error instanceof JoinRefusedError && error.code === "unauthorized");
    await assert.rejects(connect(gateway.url, { participant: "ann" }), { name: "JoinRefusedError" });
    await assert.rejects(connect(gateway.url, { space: "none", token: tokenOf("ann") }), { code: "validation_error" });
    await assert.rejects(connect(`${gateway.url}?token=x`), ConnectError);
    for (const url of ["ws://user:secret@127.0.0.1", "ws://user:secret@", "ws://127.0.0.1:x?token=secret"]) {
      await assert.rejects(
        connect(url),
        (error) => error instanceof ConnectError && !/secret@|=secret/.test(error.message),
      );
    }
    await assert.rejects(connect("ftp://127.0.0.1"), ConnectError);
    await assert.rejects(connect("http://"), ConnectError);
  });

  test("takes any address of the gateway, and a function for the token", async () => {
    for (const url of [
      `127.0.0.1:${gateway.port}`,
      `http://127.0.0.1:${gateway.port}/`,
      `${gateway.url}/any?space=demo`,
    ]) {
      const space = await connect(url, { token: async () => tokenOf("ann") });
      assert.deepEqual([space.participant, space.isConnected], ["ann", true]);
      await space.drain();
      assert.deepEqual([await space.closed, space.isConnected], [undefined, false]);
    }
    await assert.rejects(connect(gateway.url, { token: () => Promise.reject(new Error("no token")) }), /no token/);
  });

  test("says that nobody is there", async () => {
    await assert.rejects(connect("ws://127.0.0.1:1"), (error) => error.constructor === ConnectError);
  });

  test("with a token that no subprotocol can carry sends it in the join", async () => {
    const [ann] = await join(["ann", { token: strangeTokenOf("ann") }]);
    assert.equal(ann.participant, "ann");
  });

  test("a space that was closed says so", async () => {
    const [ann] = await join("ann");
    const stream = await ann.open();
    const frames = ann.subscribe(stream);
    const all = ann.subscribe();
    await stream.send("last");
    await ann.drain();
    assert.equal((await take(frames, 1))[0].text, "last");
    assert.equal((await frames.next()).done, true);
    await take(all, 1);
    assert.equal((await all.next()).done, true);
    await assert.rejects(ann.chat("more"), { name: "ConnectionClosedError", code: 1000 });
    await assert.rejects(stream.send("more"), { name: "ConnectionClosedError" });
    await ann.close();
    await ann.drain();
  });
});

test("the errors and close codes are those of the gateway", async () => {
  const mewstream = await import("mewstream");
  const codes = await python(
    "import json; from mewstream.protocol.errors import BY_CODE; print(json.dumps(sorted(BY_CODE)))",
  );
  const classes = Object.values(mewstream).filter((each) => each.prototype instanceof RefusedError);
  assert.deepEqual(classes.map(({ code }) => code).sort(), codes);
  for (const each of classes) {
    const name = each.code.replace(/(^|_)(.)/g, (_, __, letter) => letter.toUpperCase()).replace(/Error$/, "");
    assert.equal(each.name, `${name}Error`);
  }
  const closes = await python(
    "import json; from mewstream.protocol.close_codes import CloseReason, may_reconnect; " +
      "print(json.dumps([{each.name: each.value.code for each in CloseReason}, " +
      "[code for code in range(1000, 5000) if may_reconnect(code)]]))",
  );
  assert.deepEqual(mewstream.CloseCode, closes[0]);
  const retried = Array.from({ length: 4000 }, (_, number) => 1000 + number).filter(mewstream.mayReconnect);
  assert.deepEqual(retried, closes[1]);
});
