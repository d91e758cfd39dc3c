import { Buffer } from "node:buffer";
import type { Buffer as Bytes } from "node:http";

const LEAST = 1024;

/**
 * Bytes that come piece by piece. They are copied together at once: a list of the pieces would take a hundred bytes for
 * each of them, however short, so that a sender could fill the memory with pieces that hold next to nothing.
 */
export class GrowingBuffer {
  #bytes: Bytes = Buffer.alloc(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  append(piece: Bytes): void {
    const size = this.#size + piece.length;
    if (size > this.#bytes.length) {
      // Twice the size, so that each byte is copied only a few times in all.
      const larger = Buffer.alloc(Math.max(size, 2 * this.#bytes.length, LEAST));
      larger.set(this.#bytes.subarray(0, this.#size));
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#size);
    this.#size = size;
  }

  /** Returns everything, and is empty then. */
  take(): Bytes {
    const taken = this.#bytes.subarray(0, this.#size);
    this.#bytes = Buffer.alloc(0);
    this.#size = 0;
    return taken;
  }
}
