/** A JSON value as a tree, which is made only as far as somebody opens it. */

import { useState } from "preact/hooks";

const MOST_CHILDREN = 100;
const MOST_TEXT = 500;

export function JsonTree({ value }: { value: unknown }) {
  return (
    <div class="tree">
      <Node value={value} isOpen />
    </div>
  );
}

function Node({ name, value, isOpen: isOpenAtFirst = false }: { name?: string; value: unknown; isOpen?: boolean }) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  if (typeof value !== "object" || value === null) {
    return (
      <div class="leaf">
        {name !== undefined && <Key name={name} />}
        <span class={value === null ? "null" : typeof value}>{text(value)}</span>
      </div>
    );
  }
  const entries = Object.entries(value);
  const summary = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {name !== undefined && <Key name={name} />}
        <span class="muted">{summary}</span>
      </summary>
      {isOpen && entries.slice(0, MOST_CHILDREN).map(([key, each]) => <Node key={key} name={key} value={each} />)}
      {isOpen && entries.length > MOST_CHILDREN && <p class="muted">and {entries.length - MOST_CHILDREN} more</p>}
    </details>
  );
}

function Key({ name }: { name: string }) {
  return (
    <b>
      <bdi>{name.slice(0, MOST_TEXT)}</bdi>:{" "}
    </b>
  );
}

function text(value: unknown): string {
  const found = JSON.stringify(value) ?? "";
  return found.length > MOST_TEXT ? `${found.slice(0, MOST_TEXT)}… (${found.length} characters)` : found;
}
