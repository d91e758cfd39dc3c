import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The gateway of `make serve`, which `npm run dev` passes requests on to. */
const GATEWAY = process.env.GATEWAY ?? "http://127.0.0.1:8080";

/**
 * A classic script, for which the browser sends no origin: also a page that may not use the gateway, such as behind a
 * proxy that hides its own name, shows up and can say why.
 */
const classicScript = {
  name: "classic-script",
  transformIndexHtml: {
    order: "post",
    handler: (html) => html.replace('type="module" crossorigin', "defer").replaceAll(" crossorigin", ""),
  },
};

export default defineConfig({
  plugins: [classicScript],
  resolve: { alias: { mewstream: here("../clients/typescript/src/index.ts") } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: here("../src/mewstream/gateway/console"),
    emptyOutDir: true,
    target: "es2022",
    // Everything is a file of its own: the policy of the page allows nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { output: { format: "iife" } },
    cssCodeSplit: false,
    reportCompressedSize: true,
  },
  server: {
    proxy: {
      "^/(ws|health|spaces|gateway|refusals|streams|participants|openapi)": { target: GATEWAY, ws: true },
    },
  },
});
