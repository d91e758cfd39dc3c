/** Tells listeners that something has changed, not more often than they can draw, and not while nobody looks. */
export class Pulse {
  readonly #interval: number;
  readonly #listeners = new Set<() => void>();
  #isDue = false;
  #last = -Infinity;

  /** `perSecond`: how often at most. */
  constructor(perSecond: number) {
    // Screens do not tick evenly: a picture that is due within half a tick is due now.
    this.#interval = 1000 / perSecond - 8;
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
    if (now - this.#last < this.#interval) {
      requestAnimationFrame(this.#beat);
      return;
    }
    this.#last = now;
    this.#isDue = false;
    for (const listener of [...this.#listeners]) listener();
  };
}
