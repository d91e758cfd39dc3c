/** What people say to each other, and what waits for somebody's approval. */

import type { Proposed } from "mewstream";

import { Ring } from "./ring.js";

export interface Said {
  readonly at: number;
  readonly sender: string;
  readonly text: string;
  readonly to: readonly string[];
  readonly id: string;
}

export type ProposalState = "open" | "fulfilled" | "rejected" | "withdrawn";

export interface Entry {
  readonly at: number;
  readonly proposed: Proposed;
  state: ProposalState;
  /** Who approved, rejected or withdrew it. */
  by?: string;
  reason?: string;
}

const MOST_SAID = 500;
const MOST_PROPOSALS = 300;

export class Inbox {
  readonly #said = new Ring<Said>(MOST_SAID);
  readonly #proposals = new Map<string, Entry>();
  /** How many chat messages came since somebody last looked. */
  unread = 0;

  get said(): Said[] {
    return this.#said.last();
  }

  /** Newest first. */
  get proposals(): Entry[] {
    return [...this.#proposals.values()].reverse();
  }

  get waiting(): number {
    return this.proposals.filter(({ state }) => state === "open").length;
  }

  say(said: Said): void {
    this.#said.push(said);
    this.unread++;
  }

  propose(proposed: Proposed, at: number): void {
    this.#proposals.set(proposed.proposal, { at, proposed, state: "open" });
    for (const id of this.#proposals.keys()) {
      if (this.#proposals.size <= MOST_PROPOSALS) break;
      this.#proposals.delete(id);
    }
  }

  /** Returns the proposal, if it is one and was open. */
  settle(proposal: string, state: ProposalState, by: string, reason?: string): Entry | undefined {
    const entry = this.#proposals.get(proposal);
    if (entry?.state !== "open") return undefined;
    Object.assign(entry, { state, by, reason });
    return entry;
  }
}
