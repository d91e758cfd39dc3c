/** The clock of the gateway, which may be wrong, or ours is. */

/** Differences below this are the time that messages take. */
const NOISE = 2000;

export class Clock {
  /** How much our clock is ahead; the smallest difference was seen with the fastest message. */
  #ahead: number | undefined;

  /** When something happened by our clock that has the time `ts`, in the form of RFC 3339, and was received `now`. */
  at(ts: string | undefined, now: number): number {
    const told = Date.parse(ts ?? "");
    if (Number.isNaN(told)) return now;
    const ahead = now - told;
    if (this.#ahead === undefined || ahead < this.#ahead) this.#ahead = Math.abs(ahead) < NOISE ? 0 : ahead;
    return Math.min(now, told + this.#ahead);
  }
}
