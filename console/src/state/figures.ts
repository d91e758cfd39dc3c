/** The figures of the gateway over time. The gateway tells sums; rates are what changed between two answers. */

export interface Sample {
  /** When the gateway made it. */
  readonly at: number;
  readonly cpuSeconds: number;
  readonly memory: number;
  readonly connections: number;
  readonly frames: number;
  readonly bytes: number;
  readonly deliveries: number;
  readonly dropped: number;
}

export interface Rates {
  readonly at: number;
  /** A part of one processor. */
  readonly cpu: number;
  readonly memory: number;
  readonly connections: number;
  readonly frames: number;
  readonly bytes: number;
  readonly deliveries: number;
  readonly dropped: number;
}

const MOST = 300;

export class Figures {
  #samples: Sample[] = [];

  add(sample: Sample): void {
    const newest = this.#samples.at(-1);
    // A restarted gateway begins to count anew.
    if (newest && sample.cpuSeconds < newest.cpuSeconds) this.#samples = [];
    // An answer may be the one of before: the gateway makes one a second.
    else if (newest && sample.at <= newest.at) return;
    this.#samples.push(sample);
    if (this.#samples.length > MOST) this.#samples.shift();
  }

  /** Oldest first. */
  get rates(): Rates[] {
    return this.#samples.slice(1).map((sample, index) => between(this.#samples[index] as Sample, sample));
  }
}

function between(before: Sample, after: Sample): Rates {
  const seconds = (after.at - before.at) / 1000;
  const rate = (key: "frames" | "bytes" | "deliveries" | "dropped"): number =>
    Math.max(0, after[key] - before[key]) / seconds;
  return {
    at: after.at,
    cpu: (after.cpuSeconds - before.cpuSeconds) / seconds,
    memory: after.memory,
    connections: after.connections,
    frames: rate("frames"),
    bytes: rate("bytes"),
    deliveries: rate("deliveries"),
    dropped: rate("dropped"),
  };
}
