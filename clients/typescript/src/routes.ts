import type { Head } from "./frame.js";
import { Frame, frameOf } from "./frame.js";
import type { FrameQueue } from "./queue.js";
import type { Message } from "./wire.js";
import { streamOf } from "./wire.js";

/** Which subscriptions get which frames. */
export class Routes {
  readonly #streams = new Map<string, Set<FrameQueue>>();
  readonly #everyStream = new Set<FrameQueue>();
  /** Subscriptions by a name that may turn out to be an alias. */
  readonly #unresolved = new Map<string, Set<FrameQueue>>();

  /**
   * Routes the frames of a stream to the queue, or of every stream where it is undefined. `isKnown`: the name is an id,
   * not perhaps an alias. Returns a function that ends the route.
   */
  add(queue: FrameQueue, stream: string | undefined, isKnown: boolean): () => void {
    if (stream === undefined) this.#everyStream.add(queue);
    else {
      addTo(this.#streams, stream, queue);
      if (!isKnown) addTo(this.#unresolved, stream, queue);
    }
    return () => {
      this.#everyStream.delete(queue);
      removeFrom(this.#streams, queue);
      removeFrom(this.#unresolved, queue);
    };
  }

  /** Subscriptions by this alias are for this stream. */
  streamOpened(id: string, alias: string | undefined): void {
    this.#unresolved.delete(id);
    if (alias === undefined || alias === id) return;
    for (const queue of this.#unresolved.get(alias) ?? []) {
      this.#streams.get(alias)?.delete(queue);
      addTo(this.#streams, id, queue);
    }
    this.#unresolved.delete(alias);
  }

  /** Ends the subscriptions of a stream, though not those of every stream. */
  streamEnded(id: string): void {
    for (const queue of this.#streams.get(id) ?? []) queue.end();
    this.#streams.delete(id);
  }

  /** Ends every subscription. */
  end(error?: Error): void {
    for (const queue of this.#all()) queue.end(error);
    this.#streams.clear();
    this.#unresolved.clear();
    this.#everyStream.clear();
  }

  frame(message: string | Uint8Array, head: Head): void {
    const queues = this.#streams.get(head.stream);
    if (!queues && this.#everyStream.size === 0) return;
    const data = typeof message === "string" ? message.slice(head.end) : message.subarray(head.end);
    for (const queue of queues ?? []) queue.put(new Frame(head, data));
    for (const queue of this.#everyStream) queue.put(new Frame(head, data));
  }

  /** Routes a `stream/data` envelope. */
  data(message: Message): void {
    for (const queue of this.#of(streamOf(message.payload))) queue.putNumbered(frameOf(message));
  }

  /** The gateway has dropped frames of this stream. */
  framesDropped(stream: string, count: number, firstSeq: number): void {
    for (const queue of this.#of(stream)) queue.putDropped(stream, count, firstSeq);
  }

  /** Frames of any stream were lost, and nobody knows how many. */
  framesLost(): void {
    for (const queue of this.#all()) queue.putGap(1);
  }

  #of(stream: string): FrameQueue[] {
    return [...(this.#streams.get(stream) ?? []), ...this.#everyStream];
  }

  #all(): FrameQueue[] {
    return [...[...this.#streams.values()].flatMap((each) => [...each]), ...this.#everyStream];
  }
}

function addTo(queues: Map<string, Set<FrameQueue>>, key: string, queue: FrameQueue): void {
  queues.set(key, (queues.get(key) ?? new Set()).add(queue));
}

function removeFrom(queues: Map<string, Set<FrameQueue>>, queue: FrameQueue): void {
  for (const [key, listed] of queues) {
    if (listed.delete(queue) && listed.size === 0) queues.delete(key);
  }
}
