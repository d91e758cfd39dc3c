/** The documents say what the code does: their programs are run, and their tables are compared with the types. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";

import * as mewstream from "mewstream";
import { Gateway, read, ROOT } from "./support.js";

const PACKAGE = join(ROOT, "clients/typescript");
const DOCUMENTS = ["clients/typescript/README.md", "docs/typescript.md"];

function blocks(text) {
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, content]) => [language, content]);
}

/** The declarations of the package, which is what users see of it. */
const DECLARATIONS = readdirSync(join(PACKAGE, "dist"))
  .filter((name) => name.endsWith(".d.ts"))
  .map((name) => [name, readFileSync(join(PACKAGE, "dist", name), "utf8")]);

suite("programs", () => {
  const gateway = new Gateway({ configFile: join(ROOT, "examples/space.yaml") });
  before(() => gateway.start());
  after(() => gateway.stop());
  for (const document of DOCUMENTS) {
    const found = blocks(read(document));
    found.forEach(([language, program], place) => {
      if (language !== "js") return;
      test(`of ${document}, block ${place}, print what stands below them`, async (t) => {
        // Within the package, which then finds itself by its name.
        const directory = mkdtempSync(join(PACKAGE, "test/program-"));
        t.after(() => rmSync(directory, { recursive: true, force: true }));
        writeFileSync(join(directory, "program.js"), program.replaceAll("127.0.0.1:8080", `127.0.0.1:${gateway.port}`));
        const { stdout, stderr } = spawnSync("node", [join(directory, "program.js")], {
          encoding: "utf8",
          timeout: 60_000,
        });
        assert.equal(stderr, "");
        const [what, expected] = found[place + 1];
        assert.equal(what, "text");
        assert.equal(stdout, expected);
      });
    });
  }
});

suite("docs/typescript.md", () => {
  const document = read("docs/typescript.md");

  test("names every export", () => {
    for (const name of Object.keys(mewstream)) assert.match(document, new RegExp(`\`${name}\\b`), name);
  });

  test("names every event, option, property and method", () => {
    const declared = new Map(DECLARATIONS);
    const documented = {
      "events.d.ts": /readonly type: "(\w+)"/g,
      "connect.d.ts": /readonly (\w+)\?:/g,
      "space.d.ts": /^ {4}(?:get )?(\w+)(?:<.*>)?\(/gm,
      "stream.d.ts": /^ {4}(?:get |readonly )?(\w+)\??(?:<.*>)?[(:]/gm,
      "frame.d.ts": /^ {4}(?:get |readonly )(\w+)\??[(:]/gm,
    };
    for (const [file, pattern] of Object.entries(documented)) {
      const text = declared.get(file);
      const found = [...text.slice(Math.max(0, text.indexOf("class Frame"))).matchAll(pattern)]
        .map(([, name]) => name)
        .filter((name) => name !== "constructor");
      assert.ok(found.length > 5, file);
      for (const name of new Set(found)) assert.match(document, new RegExp(`\\b${name}\\b`), `${file}: ${name}`);
    }
  });
});

suite("types", () => {
  test("leak no any", () => {
    for (const [name, text] of DECLARATIONS) {
      const code = text.replace(/\/\*.*?\*\//gs, "");
      assert.doesNotMatch(code, /\bany\b/, name);
    }
  });

  test("that are exported say what they are", () => {
    const exported = readFileSync(join(PACKAGE, "dist/exports.d.ts"), "utf8");
    const names = new Set([...exported.matchAll(/\b[A-Z]\w+\b/g)].map(([name]) => name).concat(Object.keys(mewstream)));
    for (const [file, text] of DECLARATIONS) {
      for (const [, comment, name] of text.matchAll(
        /(\*\/\n)?^export (?:declare )?(?:class|interface|type|const|function) (\w+)/gm,
      )) {
        if (names.has(name)) assert.ok(comment, `${name} in ${file} has no comment`);
      }
    }
  });

  test("are what a program in strict TypeScript expects", () => {
    const { stdout, status } = spawnSync("npx", ["tsc", "-p", "test/tsconfig.json"], {
      cwd: PACKAGE,
      encoding: "utf8",
    });
    assert.equal(status, 0, stdout);
  });
});

test("the package holds what users need, and nothing else", () => {
  const { stdout } = spawnSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: PACKAGE,
    encoding: "utf8",
  });
  const [{ files }] = JSON.parse(stdout);
  const others = files.map(({ path }) => path).filter((path) => !/^dist\/[a-z-]+(\.d\.ts|\.js)$/.test(path));
  assert.deepEqual(others.sort(), ["LICENSE", "README.md", "package.json"]);
  const sources = readdirSync(join(PACKAGE, "src")).filter((name) => !name.endsWith(".d.ts"));
  assert.equal(files.length, 3 + 2 * sources.length);
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  assert.deepEqual([dependencies, Object.keys(devDependencies)], [undefined, ["typescript"]]);
});
