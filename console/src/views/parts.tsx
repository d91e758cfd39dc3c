/** Small pieces that all views are made of. */

import type { ComponentChildren } from "preact";
import { useEffect, useReducer } from "preact/hooks";

import type { Pulse } from "../session/pulse.js";
import type { Watch } from "../session/watch.js";
import type { Obstacle } from "../state/permits.js";
import { tell } from "./toasts.js";

/** Draws the component again whenever the pulse beats. */
export function usePulse(pulse: Pulse): void {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => pulse.on(() => again(undefined)), [pulse]);
}

/** The name of a participant, with its colour. */
export function Who({ watch, id, isPlain }: { watch: Watch; id: string; isPlain?: boolean }) {
  return (
    <span class="who">
      {!isPlain && <i class={`spot person-${watch.colours.of(id)}`} />}
      <bdi title={id}>{id}</bdi>
      {id === watch.me && <small class="you">you</small>}
    </span>
  );
}

/** Names come from others: they are kept apart from the text around them, whatever is in them. */
export function Name({ children }: { children: string }) {
  return <bdi title={children}>{children}</bdi>;
}

interface ButtonProps {
  readonly children: ComponentChildren;
  /** What it does; where that fails, the page says why. */
  readonly act: () => unknown;
  /** Why it cannot be used now. */
  readonly obstacle?: Obstacle;
  readonly kind?: "plain" | "primary" | "danger" | "quiet";
  readonly label?: string;
  readonly isPressed?: boolean;
  readonly name?: string;
}

/** A button that stays where it is, and reachable by keyboard, where it cannot be used: it says why. */
export function Button({ children, act, obstacle, kind = "plain", label, isPressed, name }: ButtonProps) {
  return (
    <button
      type="button"
      class={`button ${kind}`}
      title={obstacle ?? label}
      aria-label={label}
      aria-disabled={obstacle !== undefined}
      aria-pressed={isPressed}
      data-name={name}
      onClick={() => {
        if (obstacle !== undefined) tell(obstacle, "warning");
        else void attempt(act);
      }}
    >
      {children}
    </button>
  );
}

/** Does it, and says where it fails. Returns whether it did not. */
export async function attempt(act: () => unknown): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    tell(error instanceof Error ? error.message : String(error), "bad");
    return false;
  }
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

export function Badge({ kind, children }: { kind?: string; children: ComponentChildren }) {
  return <span class={`badge ${kind ?? ""}`}>{children}</span>;
}

export function Facts({ children }: { children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
