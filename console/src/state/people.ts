/** Who is in the space, who was, and how they are. */

import type { Capability } from "mewstream";

/** `invited`: may join, and was not here yet; `gone`: was here, or could be. */
export type Presence = "here" | "suspended" | "invited" | "gone";

export interface Person {
  readonly id: string;
  presence: Presence;
  capabilities: readonly Capability[];
  /** Since when it is so; undefined where it was so before us. */
  since?: number;
  isPaused: boolean;
  /** How many of its messages were refused, as far as we were told. */
  refusals: number;
}

/** How many of those who are gone are remembered. */
const MOST_GONE = 1000;

export class People {
  readonly #people = new Map<string, Person>();

  get(id: string): Person | undefined {
    return this.#people.get(id);
  }

  /** By presence, then by id. */
  get all(): Person[] {
    const order: Presence[] = ["here", "suspended", "invited", "gone"];
    return [...this.#people.values()].sort(
      (a, b) => order.indexOf(a.presence) - order.indexOf(b.presence) || a.id.localeCompare(b.id),
    );
  }

  /** Those who are in the space. */
  get present(): Person[] {
    return this.all.filter(({ presence }) => presence === "here" || presence === "suspended");
  }

  become(id: string, presence: Presence, at?: number, capabilities?: readonly Capability[]): void {
    const known = this.#people.get(id);
    if (known) {
      if (known.presence !== presence) Object.assign(known, { presence, since: at });
      if (presence === "gone") known.isPaused = false;
      if (capabilities) known.capabilities = capabilities;
      return;
    }
    this.#people.set(id, { id, presence, since: at, capabilities: capabilities ?? [], isPaused: false, refusals: 0 });
    this.#forget();
  }

  /** What the gateway lists of everyone who could join. */
  listed(id: string, isConnected: boolean, capabilities: readonly Capability[]): void {
    const presence = this.#people.get(id)?.presence ?? (isConnected ? "here" : "gone");
    this.become(id, presence, undefined, capabilities);
  }

  pause(id: string, isPaused: boolean): void {
    const known = this.#people.get(id);
    if (known) known.isPaused = isPaused;
  }

  refused(id: string, count = 1): void {
    const known = this.#people.get(id);
    if (known) known.refusals += count;
  }

  #forget(): void {
    const gone = [...this.#people.values()].filter(({ presence }) => presence === "gone");
    for (const { id } of gone.slice(0, -MOST_GONE)) this.#people.delete(id);
  }
}
