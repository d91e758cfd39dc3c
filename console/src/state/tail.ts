/** The newest frames of one stream, as many as fit. */

import type { Frame } from "mewstream";

import { sizeOf } from "./decode.js";

export interface Tailed {
  readonly frame: Frame;
  readonly at: number;
  readonly bytes: number;
  readonly number: number;
}

const MOST_FRAMES = 300;
const MOST_BYTES = 8 << 20;

export class Tail {
  #frames: Tailed[] = [];
  #bytes = 0;
  #numbered = 0;
  isPaused = false;
  /** How many came while it was paused. */
  skipped = 0;

  constructor(readonly stream: string) {}

  /** Newest first. */
  get frames(): Tailed[] {
    return [...this.#frames].reverse();
  }

  add(frame: Frame, at: number): void {
    if (frame.stream !== this.stream) return;
    if (this.isPaused) {
      this.skipped++;
      return;
    }
    const bytes = sizeOf(frame);
    this.#frames.push({ frame, at, bytes, number: ++this.#numbered });
    this.#bytes += bytes;
    while (this.#frames.length > MOST_FRAMES || (this.#bytes > MOST_BYTES && this.#frames.length > 1)) {
      this.#bytes -= this.#frames.shift()?.bytes ?? 0;
    }
  }

  pause(isPaused: boolean): void {
    this.isPaused = isPaused;
    this.skipped = 0;
  }
}
