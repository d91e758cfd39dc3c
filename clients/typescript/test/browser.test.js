/** The built package in a real browser, on a page with a strict policy, against a real gateway. */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Gateway, ROOT, tokenOf, until, within } from "./support.js";

const BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PACKAGE = join(ROOT, "clients/typescript");
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self' ws://127.0.0.1:*";
const PAGE =
  '<!doctype html><meta charset="utf-8"><title>mewstream</title><script type="module" src="/page.js"></script>';

/** A site whose page asks for things by POST. `answers` has a function for each. */
async function serve(t, answers) {
  const files = { "/": PAGE, "/page.js": readFileSync(join(PACKAGE, "test/browser-page.js")), "/favicon.ico": "" };
  const server = createServer(async (request, response) => {
    if (request.method === "POST") {
      const body = Buffer.concat(await request.toArray()).toString();
      const answer = await answers[request.url.slice(1)](JSON.parse(body));
      response.end(JSON.stringify(answer ?? {}));
      return;
    }
    const isScript = /\.js$/.test(request.url);
    response.setHeader("Content-Type", isScript ? "text/javascript" : "text/html");
    response.setHeader("Content-Security-Policy", POLICY);
    response.end(files[request.url] ?? readFileSync(join(PACKAGE, request.url)));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return server.address().port;
}

function browse(t, port) {
  const browser = BROWSERS.find((each) => spawnSync("which", [each]).status === 0);
  assert.ok(browser, `none of ${BROWSERS.join(", ")} is installed, and this must be tested: apt-get install chromium`);
  const profile = mkdtempSync(join(tmpdir(), "mewstream-browser-"));
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
  const options = { stdio: "ignore", detached: true }; // a group of processes, which end together
  const child = spawn(browser, [...flags, `--user-data-dir=${profile}`, `http://127.0.0.1:${port}/`], options);
  t.after(async () => {
    const gone = once(child, "exit");
    process.kill(-child.pid, "SIGKILL");
    await gone;
    rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
  });
}

/** Opens the page, and resolves to what it has found out. */
async function run(t, scenario, { isAllowed = true, act = () => ({}) } = {}) {
  let done;
  const finished = new Promise((resolve) => (done = resolve));
  const answers = { done };
  const port = await serve(t, answers);
  const gateway = new Gateway({
    participants: ["page", "node"],
    hasData: true,
    gateway: { allowed_origins: isAllowed ? [`http://127.0.0.1:${port}`] : [] },
  });
  t.after(() => gateway.stop());
  await gateway.start();
  Object.assign(answers, await act(gateway));
  answers.begin = () => ({ scenario, url: gateway.url, token: tokenOf("page") });
  browse(t, port);
  const { results, problems } = await within(finished, "the page did not come to its end");
  assert.deepEqual(problems, []);
  return results;
}

test("a page is a participant like any other, and survives a killed gateway", { timeout: 120_000 }, async (t) => {
  const results = await run(t, "participant", {
    act: async (gateway) => {
      const space = await gateway.join("node");
      t.after(() => space.close());
      const hero = await space.open({ desiredId: "hero" });
      space.tool("walk", {}, () => ({ walked: true }));
      space.on("proposed", (proposed) => space.fulfil(proposed));
      return {
        send: async () => {
          await hero.send({ text: "ü#|" });
          await hero.send(new Uint8Array([0, 35, 255]));
        },
        write: async ({ stream }) => {
          await until(() => space.streams.has(stream));
          return space.streams
            .get(stream)
            .send("from node")
            .then(
              () => "sent",
              (error) => error.code,
            );
        },
        "call-tool": () => space.callTool("double", { number: 21 }, { to: "page" }),
        kill: () => gateway.kill(),
        "start-and-send": async () => {
          await gateway.start();
          for (let number = 0; number < 100; number++) await hero.send(String(number));
          await hero.flush();
        },
      };
    },
  });
  assert.deepEqual(results, {
    joined: ["page", ["node"], "node"],
    frames: [{ text: "ü#|" }, "node", [0, 35, 255], true, false],
    granted: ["your turn", ["page", "node"]],
    written: [
      ["page", '{"x":1}', 0],
      ["page", [1, 2, 255], 0],
      ["node", "from node", 0],
    ],
    revoked: [["page"], "unauthorized_stream_write"],
    refused: ["UnauthorizedStreamWriteError", true, "unauthorized_stream_write"],
    tool: { content: [{ type: "text", text: '{"number":42}' }], structuredContent: { number: 42 } },
    proposal: { walked: true },
    slow: ["1999", 1999, 1999],
    lost: false,
    resumed: true,
    missed: Array.from({ length: 100 }, (_, number) => [String(number), 0]),
    closed: "here",
  });
});

test("a page learns why it is not let in", { timeout: 120_000 }, async (t) => {
  assert.deepEqual(await run(t, "strangers"), {
    wrongToken: ["JoinRefusedError", true, "unauthorized"],
    wrongName: ["JoinRefusedError", true, "unauthorized"],
    nobody: ["ConnectError", true, null],
    strangeToken: "page",
  });
});

test("a page of another origin is refused", { timeout: 120_000 }, async (t) => {
  const refused = ["JoinRefusedError", true, "unauthorized"];
  assert.deepEqual(await run(t, "anotherOrigin", { isAllowed: false }), { refused });
});
