/** Intervals of time, oldest first, of which the last may still be open. */

export interface Span {
  readonly from: number;
  /** Undefined while it lasts. */
  to?: number;
}

/** Older ones are forgotten. */
const MOST_SPANS = 500;

export class Spans {
  #spans: Span[] = [];

  get all(): readonly Span[] {
    return this.#spans;
  }

  get isOpen(): boolean {
    const last = this.#spans.at(-1);
    return last !== undefined && last.to === undefined;
  }

  /** Makes the last interval begin, or end, now. Where that is so already, nothing happens. */
  set(isOpen: boolean, at: number): void {
    if (isOpen === this.isOpen) return;
    if (isOpen) {
      this.#spans.push({ from: at });
      if (this.#spans.length > MOST_SPANS) this.#spans = this.#spans.slice(-MOST_SPANS / 2);
    } else (this.#spans.at(-1) as Span).to = at;
  }
}
