/** What is shown of a frame. It may be a megabyte of anything. */

import type { Frame } from "mewstream";

export type Shown =
  | { readonly form: "json"; readonly value: unknown }
  | { readonly form: "text"; readonly text: string }
  | { readonly form: "hex"; readonly lines: readonly string[] };

/** How a reader wants to see frames; `auto`: by what they are. */
export type Form = "auto" | "json" | "text" | "hex";

/** Larger ones are not parsed: what cannot be read at a glance need not be a tree. */
const MOST_PARSED = 64 * 1024;
const MOST_TEXT = 4096;
const MOST_HEX = 512;
const PER_LINE = 16;

const strict = new TextDecoder("utf-8", { fatal: true });
const lenient = new TextDecoder();

/** How many bytes a frame has: for texts, as UTF-8, which is not worth encoding where they are long. */
export function sizeOf(frame: Frame): number {
  if (!frame.isText) return frame.data.length;
  const { text } = frame;
  if (text.length > MOST_PARSED) return text.length;
  let size = text.length;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code > 0x7f) size += code > 0x7ff && (code < 0xd800 || code > 0xdfff) ? 2 : 1;
  }
  return size;
}

export function decode(frame: Frame, form: Form = "auto"): Shown {
  if (form === "hex") return hex(frame.data);
  const text = textOf(frame, form === "text");
  if (text === undefined) return hex(frame.data);
  if (form !== "text" && text.length <= MOST_PARSED) {
    const value = parsed(text);
    if (value !== undefined && (form === "json" || typeof value === "object")) return { form: "json", value };
  }
  return { form: "text", text: shortened(text) };
}

function textOf(frame: Frame, isForced: boolean): string | undefined {
  if (frame.isText) return frame.text;
  const { data } = frame;
  try {
    const text = strict.decode(data);
    // Bytes that happen to be UTF-8 are no text where they have control characters.
    return isForced || !/[\0-\x08\x0e-\x1f]/.test(text.slice(0, MOST_TEXT)) ? text : undefined;
  } catch {
    return isForced ? lenient.decode(data.subarray(0, 4 * MOST_TEXT)) : undefined;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function shortened(text: string): string {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}… (${text.length} characters in all)` : text;
}

function hex(data: Uint8Array): Shown {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(data.length, MOST_HEX); at += PER_LINE) {
    const row = data.subarray(at, at + PER_LINE);
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const signs = Array.from(row, (byte) => (byte > 0x1f && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(3 * PER_LINE)} ${signs}`);
  }
  if (data.length > MOST_HEX) lines.push(`… (${data.length} bytes in all)`);
  return { form: "hex", lines };
}

/** One line of what is shown, for a list. */
export function preview(shown: Shown): string {
  const text =
    shown.form === "json"
      ? JSON.stringify(shown.value)
      : shown.form === "text"
        ? shown.text
        : (shown.lines[0] ?? "").replace(/^\w+ +/, "");
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
