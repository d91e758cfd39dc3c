/** Participants of the Python SDK and of this client in one space: the scenario of seed 001, in twelve steps. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import * as node from "node:test";
import { fileURLToPath } from "node:url";

import { UnauthorizedStreamWriteError } from "mewstream";
import { event, PYTHON, take, tokenOf, until, useGateway, within } from "./support.js";

// Not "*": that holds space/manage-streams, which is a right on the streams of others.
const PLAIN = [{ kind: "stream/*" }, { kind: "mcp/*" }, { kind: "chat" }];
const PEOPLE = ["character-server", "player1", "player2", "ai-agent"];
const { gateway, join } = useGateway(node, {
  participants: PEOPLE,
  capabilities: Object.fromEntries(PEOPLE.map((each) => [each, PLAIN])),
});

/** What the Python side says. */
class Server {
  said = [];
  #process;

  constructor() {
    const script = fileURLToPath(new URL("character_server.py", import.meta.url));
    this.#process = spawn(PYTHON, [script, gateway.url, tokenOf("character-server")], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    createInterface({ input: this.#process.stdout }).on("line", (line) => this.said.push(JSON.parse(line)));
  }

  async says(...what) {
    const text = JSON.stringify(what);
    await until(() => this.said.some((each) => JSON.stringify(each) === text), text);
  }

  async ended() {
    if (this.#process.exitCode === null) await once(this.#process, "exit");
    return this.#process.exitCode;
  }
}

async function claim(space) {
  const result = await space.callTool("claim_control", { character: 1 }, { to: "character-server" });
  return result.structuredContent;
}

test("a character is handed from a server in Python to players and an agent here", { timeout: 120_000 }, async () => {
  // 1: the server connects and opens its stream. 2: player1 joins late, and sees it.
  const server = new Server();
  await until(() => server.said.length === 1);
  const [player1] = await join("player1");
  const stream = player1.streams.get("position");
  assert.deepEqual(
    [stream.id, stream.owner, stream.writers],
    [server.said[0][1], "character-server", ["character-server"]],
  );
  assert.deepEqual([stream.readers, stream.status], [PEOPLE, "live"]);

  // 3 and 4: it claims control, and is granted the right. 5: it writes, and both sides read the same.
  const granted = event(player1, "writeGranted");
  assert.deepEqual(await claim(player1), { granted: true });
  assert.deepEqual([(await granted).participant, (await granted).reason], ["player1", "claimed control"]);
  const frames = stream.subscribe();
  for (let x = 0; x < 5; x++) await stream.send({ x });
  await stream.send(new Uint8Array([0, 255]));
  const own = await take(frames, 6);
  assert.deepEqual(
    own.slice(0, 5).map((frame) => [frame.json().x, frame.sequence]),
    [
      [0, 1],
      [1, 2],
      [2, 3],
      [3, 4],
      [4, 5],
    ],
  );
  for (let x = 0; x < 5; x++) await server.says("frame", "player1", { x }, 0);
  await server.says("frame", "player1", "00ff", 0);

  // 6: player2 joins late, and sees who may write. 7: it may not.
  const [player2] = await join("player2");
  const theirs = player2.streams.get("position");
  assert.deepEqual(theirs.writers, ["character-server", "player1"]);
  await assert.rejects(theirs.send({ x: 66 }), UnauthorizedStreamWriteError);

  // 8: player1 leaves, and the gateway revokes. 9: so does the server, which changes nothing.
  const reasons = [];
  player2.on("writeRevoked", ({ reason }) => reasons.push(reason));
  await player1.drain();
  await until(() => reasons.length === 2);
  assert.deepEqual([reasons, theirs.writers], [["disconnected", "player disconnected"], ["character-server"]]);
  await server.says("WriteRevoked", "player1", "disconnected");

  // 10 and 11: the agent claims control, and becomes the owner. 12: it writes.
  const [agent] = await join("ai-agent");
  const taken = agent.streams.get("position");
  const transferred = event(agent, "ownershipTransferred");
  await claim(agent);
  assert.deepEqual([(await transferred).previousOwner, (await transferred).newOwner], ["character-server", "ai-agent"]);
  assert.deepEqual([taken.isMine, taken.writers], [true, ["ai-agent"]]);
  await taken.send({ y: 1 });
  await taken.flush();
  await server.says("OwnershipTransferred", "ai-agent");
  await server.says("frame", "ai-agent", { y: 1 }, 0);
  await agent.chat("thank you");
  await server.says("Chat", "ai-agent", "thank you");
  await taken.complete();
  await server.says("StreamClosed", "completed");
  assert.equal(await within(server.ended()), 0);
});
