/** The colours of the page, for canvases, which know no style sheet. */

import { PALETTE_SIZE } from "../state/colours.js";

const NAMES = ["text", "muted", "line", "surface", "raised", "accent", "good", "warning", "bad"] as const;
export type ColourName = (typeof NAMES)[number];

export interface Palette extends Readonly<Record<ColourName, string>> {
  readonly people: readonly string[];
  readonly font: string;
}

let current: Palette | undefined;
const listeners = new Set<() => void>();

export function palette(): Palette {
  return (current ??= read());
}

/** Calls `listener` when the page has other colours. */
export function onPalette(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** The page has other colours. */
export function paletteChanged(): void {
  current = undefined;
  listeners.forEach((listener) => listener());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paletteChanged);

/** A variable may be made of others, so that an element has to tell which colour it comes to. */
function read(): Palette {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colour = (name: string): string => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const found = Object.fromEntries(NAMES.map((name) => [name, colour(name)])) as Record<ColourName, string>;
  const people = Array.from({ length: PALETTE_SIZE }, (_, number) => colour(`person-${number}`));
  probe.remove();
  return { ...found, people, font: getComputedStyle(document.body).fontFamily };
}
