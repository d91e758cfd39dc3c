/** Short messages at the edge of the page, which go away by themselves. */

import { useEffect, useState } from "preact/hooks";

type Kind = "good" | "warning" | "bad";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly kind: Kind;
}

const MS = 7000;
const MOST = 4;

let toasts: readonly Toast[] = [];
let numbered = 0;
const listeners = new Set<() => void>();

function set(next: readonly Toast[]): void {
  toasts = next;
  listeners.forEach((listener) => listener());
}

export function tell(text: string, kind: Kind = "good"): void {
  const toast = { id: ++numbered, text, kind };
  set([...toasts.filter((each) => each.text !== text), toast].slice(-MOST));
  setTimeout(() => set(toasts.filter((each) => each !== toast)), MS);
}

export function Toasts() {
  const [, show] = useState(toasts);
  useEffect(() => {
    const listener = (): void => show(toasts);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ id, text, kind }) => (
        <div key={id} class={`toast ${kind}`}>
          {text}
        </div>
      ))}
    </div>
  );
}
