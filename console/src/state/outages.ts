/** When this page had no connection, and what it missed. */

import type { Resume } from "mewstream";

export interface Outage {
  readonly from: number;
  readonly reason: string;
  /** Undefined while it lasts. */
  to?: number;
  /** Whether everything that was missed came after all. */
  recovered?: boolean;
  /** Why not. */
  why?: string;
  /** What was missed and came after all, so far. */
  events: number;
  frames: number;
}

const MOST_OUTAGES = 100;

export class Outages {
  #all: Outage[] = [];
  /** The position up to which what comes was missed. */
  #missedUpTo = 0;

  get all(): readonly Outage[] {
    return this.#all;
  }

  get newest(): Outage | undefined {
    return this.#all.at(-1);
  }

  /** Whether there is no connection now. */
  get isOut(): boolean {
    return this.newest !== undefined && this.newest.to === undefined;
  }

  began(at: number, reason: string): void {
    if (this.isOut) return;
    this.#all = [...this.#all.slice(1 - MOST_OUTAGES), { from: at, reason, events: 0, frames: 0 }];
  }

  ended(at: number, { recovered, reason, toSeq }: Pick<Resume, "recovered" | "reason" | "toSeq">): void {
    if (!this.isOut) return;
    Object.assign(this.newest as Outage, { to: at, recovered, why: reason });
    this.#missedUpTo = recovered ? (toSeq ?? 0) : 0;
  }

  /** Something came that has this position. */
  came(what: "events" | "frames", seq: number | undefined): void {
    if (seq !== undefined && seq <= this.#missedUpTo && this.newest) this.newest[what]++;
  }
}

/** What an outage has cost, in words. */
export function costOf({ from, to, recovered, why, events, frames }: Outage): string {
  if (to === undefined) return "";
  const took = `${((to - from) / 1000).toFixed(1)} s`;
  if (!recovered) return `Away for ${took}. What happened meanwhile is not known: ${why || "the gateway cannot tell"}.`;
  const missed = [plural(events, "event"), plural(frames, "frame")].filter((each) => each).join(" and ");
  return missed ? `Away for ${took}, and missed ${missed}: all of it has come since.` : `Away for ${took}. Nothing was missed.`;
}

function plural(count: number, what: string): string {
  return count === 0 ? "" : count === 1 ? `1 ${what}` : `${count} ${what}s`;
}
