import type { Frame } from "./frame.js";

/**
 * What happens when a reader is too slow and its queue is full: `drop-oldest` drops the oldest frame, `latest` all but
 * the newest, which is right for positions in a game.
 */
export type OnSlow = "drop-oldest" | "latest";

/** How to receive frames. */
export interface SubscribeOptions {
  /** What to drop when the queue is full; `drop-oldest` by default. */
  readonly onSlow?: OnSlow;
  /** How many frames may wait: 10,000 by default, and 1 with `latest`. */
  readonly maxPending?: number;
}

interface Reader {
  resolve(result: IteratorResult<Frame, undefined>): void;
  reject(error: Error): void;
}

const DONE: IteratorReturnResult<undefined> = { value: undefined, done: true };
/** How many writers' sequence numbers a queue remembers, and how many of the jumps in them. */
const MAX_WRITERS = 10_000;
const MAX_JUMPS = 64;
/** After how many taken frames the others are moved to the front of the array. */
const MAX_TAKEN = 1024;

/** The frames between the connection, which never waits, and one reader. */
export class FrameQueue {
  /** How many frames were dropped because the reader was too slow. */
  dropped = 0;
  readonly #onSlow: OnSlow;
  readonly #limit: number;
  readonly #frames: (Frame | undefined)[] = [];
  /** Where the oldest frame is: taking from the front of an array would move all others. */
  #first = 0;
  /** How many frames are missing before the oldest one, and behind the newest. */
  #gapBefore = 0;
  #gapAfter = 0;
  readonly #readers: Reader[] = [];
  #isEnded = false;
  #error?: Error;
  /** The newest sequence number of each writer of each stream. */
  readonly #sequences = new Map<string, number>();
  /** The latest jumps in them, which the gateway may report once more as dropped frames. */
  #jumps: { stream: string; seq: number; size: number }[] = [];

  constructor({ onSlow = "drop-oldest", maxPending }: SubscribeOptions) {
    this.#onSlow = onSlow;
    this.#limit = maxPending ?? (onSlow === "latest" ? 1 : 10_000);
    if (onSlow !== "drop-oldest" && onSlow !== "latest") {
      throw new TypeError(`onSlow is ${JSON.stringify(onSlow)}: expected "drop-oldest" or "latest"`);
    }
    if (!(this.#limit >= 1)) throw new RangeError(`maxPending is ${maxPending}: expected at least 1`);
  }

  get pending(): number {
    return this.#frames.length - this.#first;
  }

  put(frame: Frame): void {
    if (this.#isEnded) return;
    if (this.pending >= this.#limit) this.#overflow();
    if (this.#gapAfter) {
      frame.addGap(this.#gapAfter);
      this.#gapAfter = 0;
    }
    this.#frames.push(frame);
    const reader = this.#readers.shift();
    if (reader) reader.resolve({ value: this.#take(), done: false });
  }

  /** Adds a frame of an announced stream, behind a gap where its sequence number has jumped. */
  putNumbered(frame: Frame): void {
    const skipped = this.#skipped(frame);
    if (skipped) {
      this.#jumps.push({ stream: frame.stream, seq: frame.seq, size: skipped });
      if (this.#jumps.length > MAX_JUMPS) this.#jumps.shift();
      // A gap that is known already, if there is one right here, is the same gap.
      this.putGap(skipped - this.#gapAfter);
    }
    this.put(frame);
  }

  /** How many numbers are missing before this one. A writer that begins anew has skipped none. */
  #skipped({ stream, writer, sequence }: Frame): number {
    if (sequence === undefined) return 0;
    if (this.#sequences.size > MAX_WRITERS) this.#sequences.clear();
    const key = `${stream}|${writer}`;
    const before = this.#sequences.get(key);
    this.#sequences.set(key, sequence);
    return before === undefined ? 0 : Math.max(0, sequence - before - 1);
  }

  /** `count` frames are missing between the newest frame and the next one. */
  putGap(count: number): void {
    this.#gapAfter += Math.max(0, count);
  }

  /** The gateway reports frames as dropped, of which some may have been noticed as jumps before. */
  putDropped(stream: string, count: number, firstSeq: number): void {
    const known = this.#jumps.filter((each) => each.stream === stream && each.seq > firstSeq);
    this.#jumps = this.#jumps.filter((each) => each.stream !== stream);
    this.putGap(known.reduce((left, each) => left - each.size, count));
  }

  #overflow(): void {
    for (let count = this.#onSlow === "latest" ? this.pending : 1; count > 0; count--) {
      this.#gapBefore += 1 + this.#shift().gap;
      this.dropped++;
    }
  }

  #shift(): Frame {
    const frame = this.#frames[this.#first] as Frame;
    this.#frames[this.#first++] = undefined; // its memory is free as soon as the reader is done with it
    if (this.pending === 0 || this.#first === MAX_TAKEN) {
      this.#frames.splice(0, this.#first);
      this.#first = 0;
    }
    return frame;
  }

  #take(): Frame {
    const frame = this.#shift();
    frame.addGap(this.#gapBefore);
    this.#gapBefore = 0;
    return frame;
  }

  next(): Promise<IteratorResult<Frame, undefined>> {
    if (this.pending) return Promise.resolve({ value: this.#take(), done: false });
    if (!this.#isEnded) return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
    return this.#error ? Promise.reject(this.#error) : Promise.resolve(DONE);
  }

  /** Nothing more will come. What is in the queue can still be taken; then readers get the error, if there is one. */
  end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#error = error;
    for (const reader of this.#readers.splice(0)) error ? reader.reject(error) : reader.resolve(DONE);
  }
}

/**
 * The frames of one stream, or of all, from the moment of subscribing. It ends with the stream, or with the space.
 *
 *     for await (const frame of space.subscribe("movement")) { ... }
 *
 * Leaving the loop ends the subscription. The loop throws {@link ConnectionClosedError} where the gateway has closed
 * the connection for good.
 */
export class Subscription implements AsyncIterableIterator<Frame, undefined> {
  readonly #queue: FrameQueue;
  readonly #detach: () => void;

  /** @internal */
  constructor(queue: FrameQueue, detach: () => void) {
    this.#queue = queue;
    this.#detach = detach;
  }

  /** How many frames wait in the queue. */
  get pending(): number {
    return this.#queue.pending;
  }

  /** How many frames were dropped because this reader was too slow. */
  get dropped(): number {
    return this.#queue.dropped;
  }

  /** Ends the subscription. Frames that wait in the queue can still be taken. */
  close(): void {
    this.#detach();
    this.#queue.end();
  }

  /** Waits for the next frame. */
  next(): Promise<IteratorResult<Frame, undefined>> {
    return this.#queue.next();
  }

  /** Ends the subscription; `for await` calls it when the loop is left. */
  return(): Promise<IteratorReturnResult<undefined>> {
    this.close();
    return Promise.resolve(DONE);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
