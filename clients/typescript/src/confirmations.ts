import { FramesUnconfirmedError } from "./errors.js";

/** Every gateway accepts messages of this size, so a smaller one is never what was too large. */
export const SMALL = 64 * 1024;

/** Counts the frames of one stream, or of all. */
export class Tally {
  sent = 0;
  confirmed = 0;
  /** How many were sent on a connection that was lost before it confirmed them, and are not reported yet. */
  unsure = 0;
  /** The size of the largest unconfirmed frame; 0 where all are small. */
  largest = 0;
  /** Why that connection was lost. */
  reason = "";

  /** Throws where frames are unsure, once for each. */
  report(): void {
    const { unsure } = this;
    this.unsure = 0;
    if (unsure) throw new FramesUnconfirmedError(unsure, this.reason);
  }
}

interface Sync {
  readonly marks: ReadonlyMap<Tally, number>;
  resolve(isConfirmed: boolean): void;
}

/** Which of our frames the gateway has confirmed as recorded, by answering a `stream/sync` that was sent after them. */
export class Confirmations {
  readonly total = new Tally();
  /** Tallies with frames that are not confirmed yet. */
  readonly #unconfirmed = new Set<Tally>();
  readonly #waiting = new Map<string, Sync>();

  /** Counts a frame. */
  sent(tally: Tally, size: number): void {
    for (const each of [tally, this.total]) {
      each.sent++;
      this.#unconfirmed.add(each);
    }
    if (size > SMALL) tally.largest = Math.max(tally.largest, size);
  }

  /** Calls `resolve` with whether the `stream/sync` with this id was answered before the connection was lost. */
  begin(id: string, resolve: (isConfirmed: boolean) => void): void {
    const marks = new Map([...this.#unconfirmed].map((tally) => [tally, tally.sent]));
    this.#waiting.set(id, { marks, resolve });
  }

  /** Confirms everything that was sent before the `stream/sync` with this id. */
  synced(id: string): void {
    const sync = this.#waiting.get(id);
    if (!sync) return;
    this.#waiting.delete(id);
    for (const [tally, mark] of sync.marks) {
      tally.confirmed = Math.max(tally.confirmed, mark);
      if (tally.confirmed === tally.sent) {
        tally.largest = 0;
        this.#unconfirmed.delete(tally);
      }
    }
    sync.resolve(true);
  }

  /** Nobody waits for this answer any longer. */
  forget(id: string): void {
    this.#waiting.delete(id);
  }

  /** The connection is lost. Returns how many frames it leaves unconfirmed. */
  lost(reason: string): number {
    const unconfirmed = this.total.sent - this.total.confirmed;
    for (const tally of this.#unconfirmed) {
      tally.unsure += tally.sent - tally.confirmed;
      tally.confirmed = tally.sent;
      tally.largest = 0;
      tally.reason = reason;
    }
    this.#unconfirmed.clear();
    for (const sync of this.#waiting.values()) sync.resolve(false);
    this.#waiting.clear();
    return unconfirmed;
  }
}
