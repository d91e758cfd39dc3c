/** Screens do not tick evenly: what is due within half a tick is due now, and the next one is that much later. */
const HALF_TICK = 8;

/** Tells listeners that something has changed, not more often than they can draw, and not while nobody looks. */
export class Pulse {
  readonly #interval: number;
  readonly #listeners = new Set<() => void>();
  #isDue = false;
  /** When the next beat is due. */
  #next = 0;

  /** `perSecond`: how often at most. */
  constructor(perSecond: number) {
    this.#interval = 1000 / perSecond;
  }

  readonly touch = (): void => {
    if (this.#isDue || this.#listeners.size === 0) return;
    this.#isDue = true;
    requestAnimationFrame(this.#beat);
  };

  on(listener: () => void): () => void {
    this.#listeners.add(listener);
    this.touch();
    return () => void this.#listeners.delete(listener);
  }

  readonly #beat = (now: number): void => {
    if (now < this.#next - HALF_TICK) {
      requestAnimationFrame(this.#beat);
      return;
    }
    this.#next = Math.max(this.#next, now - HALF_TICK) + this.#interval;
    this.#isDue = false;
    for (const listener of [...this.#listeners]) listener();
  };
}
