/** A real gateway in a process of its own, and what tests wait for. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createConnection, createServer } from "node:net";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { connect } from "mewstream";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
export const PYTHON = process.env.PYTHON ?? join(ROOT, ".venv/bin/python");
/** So long that it only ends a test that has failed. */
export const PATIENCE = 30_000;
/** Reconnects at once. */
export const QUICK = { first: 20, most: 100 };
/** Tests with this variable use the WebSocket of the platform (in Node 20: with --experimental-websocket). */
const WebSocket = process.env.PLATFORM_WEBSOCKET ? globalThis.WebSocket : undefined;

export function tokenOf(participant) {
  return `token-of-${participant}`;
}

/** A token with characters that a subprotocol cannot have. */
export function strangeTokenOf(participant) {
  return `${tokenOf(participant)}/=`;
}

/** `mewstream serve` on a free port. A restart keeps the port, and the data where there are some. */
export class Gateway {
  #directory = mkdtempSync(join(tmpdir(), "mewstream-ts-"));
  #arguments;
  #process;
  port = 0;

  /** `capabilities` are those of each participant, where they are not everything. */
  constructor({ participants, capabilities = {}, hasData = false, mewstream = {}, gateway = {}, configFile } = {}) {
    const config = {
      space: { id: "demo", name: "demo" },
      participants: Object.fromEntries(
        (participants ?? []).map((id) => [
          id,
          { tokens: [tokenOf(id), strangeTokenOf(id)], capabilities: capabilities[id] ?? [{ kind: "*" }] },
        ]),
      ),
      mewstream: { ...mewstream, limits: { joins_per_second: 0, ...mewstream.limits } },
      gateway,
    };
    const file = configFile ?? join(this.#directory, "space.yaml");
    if (!configFile) writeFileSync(file, JSON.stringify(config)); // JSON is YAML
    this.#arguments = ["--config", file, ...(hasData ? ["--data", join(this.#directory, "data")] : [])];
  }

  async start() {
    const command = ["-m", "mewstream.cli.main", "serve", "--port", String(this.port), ...this.#arguments];
    this.#process = spawn(PYTHON, command, { cwd: this.#directory, stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface({ input: this.#process.stdout });
    for await (const line of lines) {
      const found = /listening on http.*:(\d+)/.exec(line);
      if (found) {
        this.port = Number(found[1]);
        return this;
      }
    }
    throw new Error("the gateway did not start");
  }

  get url() {
    return `ws://127.0.0.1:${this.port}`;
  }

  signal(name) {
    this.#process.kill(name);
  }

  /** Kills it with -9, and waits until it is dead. */
  async kill() {
    const gone = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await gone;
  }

  async restart() {
    await this.kill();
    await this.start();
  }

  async stop() {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Waits until it has ended. */
  async stopped() {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, "exit");
  }

  /** Joins the space, directly or by another `url`. */
  join(participant, { url = this.url, ...options } = {}) {
    return connect(url, {
      space: "demo",
      participant,
      token: tokenOf(participant),
      reconnect: QUICK,
      WebSocket,
      ...options,
    });
  }
}

/** A gateway for the tests of a file, and spaces that are closed at the end of each test. */
export function useGateway(test, options) {
  const gateway = new Gateway(options);
  const spaces = [];
  test.before(() => gateway.start());
  test.afterEach(() => Promise.all(spaces.splice(0).map((space) => space.close())));
  test.after(() => gateway.stop());
  return {
    gateway,
    /** Joins as each of these participants. */
    join: async (...names) => {
      const joined = await Promise.all(
        names.map((each) => (typeof each === "string" ? gateway.join(each) : gateway.join(...each))),
      );
      spaces.push(...joined);
      return joined;
    },
  };
}

/** Resolves to the next event of a type that is accepted. */
export function event(source, type, accept = () => true) {
  return within(
    new Promise((resolve) => {
      const remove = source.on(type, (happened) => {
        if (!accept(happened)) return;
        remove();
        resolve(happened);
      });
    }),
    `no ${type}`,
  );
}

/** The promise, which must be settled before the patience of a test is at its end. */
export async function within(promise, what = "nothing happened") {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(what)), PATIENCE)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until something is true. */
export async function until(isTrue, what = String(isTrue)) {
  for (const end = Date.now() + PATIENCE; !isTrue();) {
    if (Date.now() > end) assert.fail(`it did not become true: ${what}`);
    await sleep(5);
  }
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The next frames of a subscription. */
export async function take(subscription, count) {
  const frames = [];
  while (frames.length < count) {
    const { value, done } = await within(subscription.next(), `only ${frames.length} of ${count} frames came`);
    assert.ok(!done, `only ${frames.length} of ${count} frames came before the end`);
    frames.push(value);
  }
  return frames;
}

/** Python's answer to an expression, by way of JSON. */
export async function python(code) {
  const child = spawn(PYTHON, ["-c", code], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.on("data", (chunk) => (text += chunk));
  const [status] = await once(child, "close");
  assert.equal(status, 0);
  return JSON.parse(text);
}

export function read(path) {
  return readFileSync(join(ROOT, path), "utf8");
}

/** A network between a client and a gateway: it can be cut, and hold back what goes in either direction. */
export class Network {
  #server;
  #port = 0;
  #target;
  #pairs = new Set();
  /** Whether new connections are refused. */
  isDown = false;

  constructor(target) {
    this.#target = target;
    this.#server = createServer((client) => {
      if (this.isDown) {
        client.destroy();
        return;
      }
      const gateway = createConnection(this.#target.port, "127.0.0.1");
      const pair = { client, gateway };
      this.#pairs.add(pair);
      for (const [from, to] of [
        [client, gateway],
        [gateway, client],
      ]) {
        from.on("data", (chunk) => to.write(chunk));
        from.on("error", () => undefined);
        from.on("close", () => {
          to.destroy();
          this.#pairs.delete(pair);
        });
      }
    });
  }

  async start() {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = this.#server.address().port;
    return this;
  }

  get url() {
    return `ws://127.0.0.1:${this.#port}`;
  }

  /** Cuts all connections, without a close. */
  cut() {
    for (const { client, gateway } of this.#pairs) {
      client.resetAndDestroy();
      gateway.destroy();
    }
  }

  /** Holds back what the client sends, or what the gateway does, until the connection is cut or it is released. */
  hold(side) {
    for (const pair of this.#pairs) pair[side].pause();
  }

  release(side) {
    for (const pair of this.#pairs) pair[side].resume();
  }

  stop() {
    this.cut();
    this.#server.close();
  }
}
