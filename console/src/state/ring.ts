/** The newest `capacity` values that were added. */
export class Ring<Value> {
  #values: Value[] = [];

  constructor(readonly capacity: number) {}

  get size(): number {
    return Math.min(this.#values.length, this.capacity);
  }

  get newest(): Value | undefined {
    return this.#values.at(-1);
  }

  push(value: Value): void {
    this.#values.push(value);
    // Not at every value: to move them all costs as much as there are.
    if (this.#values.length >= 2 * this.capacity) this.#values = this.#values.slice(-this.capacity);
  }

  /** The newest `count` values, oldest first. */
  last(count = this.capacity): Value[] {
    return this.#values.slice(-Math.min(count, this.capacity));
  }

  clear(): void {
    this.#values = [];
  }
}
