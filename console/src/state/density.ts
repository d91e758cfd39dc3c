/** How many frames came when: fine for the last minutes, coarse for the last day, in a few kilobytes. */

/** The width of a bucket in milliseconds, and how many there are. */
const LEVELS: readonly (readonly [width: number, size: number])[] = [
  [50, 1200],
  [250, 1200],
  [1000, 900],
  [5000, 720],
  [30_000, 720],
  [180_000, 480],
];
const MOST = 0xffff;

export class Density {
  /** How many frames came in all. */
  total = 0;
  /** When the newest one came. */
  newest = 0;
  readonly #levels = LEVELS.map(([width, size]) => new Level(width, size));

  add(at: number, count = 1): void {
    this.total += count;
    if (at > this.newest) this.newest = at;
    for (const level of this.#levels) level.add(at, count);
  }

  /**
   * Calls `draw` for every bucket between two times that is not empty, at the finest level whose buckets are at least
   * `width` milliseconds wide and that reaches back to `from`.
   */
  between(from: number, to: number, width: number, draw: (at: number, width: number, count: number) => void): void {
    const fits = (level: Level): boolean => level.width >= width && level.oldest <= from;
    const level = this.#levels.find(fits) ?? (this.#levels.at(-1) as Level);
    level.between(from, to, draw);
  }

  /** How many frames came in the last `seconds` full seconds, as a number for each. */
  perSecond(now: number, seconds: number): number[] {
    const counts = new Array<number>(seconds).fill(0);
    const end = Math.floor(now / 1000);
    this.#levels.find(({ width }) => width === 1000)?.between((end - seconds) * 1000, end * 1000 - 1, (at, _, count) => {
      counts[at / 1000 - end + seconds] = count;
    });
    return counts;
  }
}

class Level {
  readonly #counts: Uint16Array;
  /** The number of the newest bucket, counted since 1970. */
  #newest = -1;

  constructor(
    readonly width: number,
    readonly size: number,
  ) {
    this.#counts = new Uint16Array(size);
  }

  /** When the oldest bucket begins; where nothing was ever forgotten, that is as good as the beginning of time. */
  get oldest(): number {
    return (this.#newest - this.size + 1) * this.width;
  }

  add(at: number, count: number): void {
    const bucket = Math.floor(at / this.width);
    if (bucket > this.#newest) {
      const skipped = Math.min(bucket - this.#newest, this.size);
      for (let each = bucket - skipped + 1; each <= bucket; each++) this.#counts[each % this.size] = 0;
      this.#newest = bucket;
    }
    if (bucket <= this.#newest - this.size) return;
    const place = bucket % this.size;
    this.#counts[place] = Math.min(MOST, (this.#counts[place] ?? 0) + count);
  }

  between(from: number, to: number, draw: (at: number, width: number, count: number) => void): void {
    const first = Math.max(Math.floor(from / this.width), this.#newest - this.size + 1);
    const last = Math.min(Math.floor(to / this.width), this.#newest);
    for (let bucket = first; bucket <= last; bucket++) {
      const count = this.#counts[bucket % this.size];
      if (count) draw(bucket * this.width, this.width, count);
    }
  }
}
