import { FormatViolationError } from "./errors.js";
import type { Message } from "./wire.js";
import { integer, streamOf, string } from "./wire.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true });

const HASH = 0x23;

/** What stands before the data of a raw frame: `#<stream>|<seq>|<writer>#`. */
export interface Head {
  readonly stream: string;
  readonly seq: number;
  readonly writer: string;
  /** Where the data begins. */
  readonly end: number;
}

/** One frame of a stream. */
export class Frame {
  /** The id of the stream. */
  readonly stream: string;
  /** The participant who wrote it. */
  readonly writer: string;
  /** Its position in the space. */
  readonly seq: number;
  /** Whether it was sent as text, not as bytes. */
  readonly isText: boolean;
  /** The writer's own number, which only frames of announced streams have. */
  readonly sequence?: number;
  /** The format that the writer named, if it did. */
  readonly formatId?: string;
  readonly #raw: string | Uint8Array;
  #gap = 0;

  /** @internal */
  constructor(
    head: { stream: string; seq: number; writer: string },
    raw: string | Uint8Array,
    numbered?: { sequence?: number; formatId?: string },
  ) {
    this.stream = head.stream;
    this.writer = head.writer;
    this.seq = head.seq;
    this.isText = typeof raw === "string";
    this.sequence = numbered?.sequence;
    this.formatId = numbered?.formatId;
    this.#raw = raw;
  }

  /**
   * How many frames are missing right before this one: dropped because a reader was too slow, skipped by the writer,
   * or lost while there was no connection. It is 1 where nobody knows how many.
   */
  get gap(): number {
    return this.#gap;
  }

  /** @internal */
  addGap(count: number): void {
    this.#gap += count;
  }

  /** The bytes that the writer sent; for a frame of an announced stream, the JSON of its content. */
  get data(): Uint8Array {
    return typeof this.#raw === "string" ? encoder.encode(this.#raw) : this.#raw;
  }

  /**
   * The data as text.
   *
   * @throws {@link FormatViolationError} where it is not UTF-8.
   */
  get text(): string {
    if (typeof this.#raw === "string") return this.#raw;
    try {
      return strictDecoder.decode(this.#raw);
    } catch {
      throw this.#violation("not UTF-8");
    }
  }

  /**
   * Decodes the data as JSON. Nothing checks that it is a `T`.
   *
   * @throws {@link FormatViolationError} where it is not JSON.
   */
  json<T = unknown>(): T {
    const text = this.text;
    try {
      return JSON.parse(text) as T;
    } catch {
      throw this.#violation("not JSON");
    }
  }

  #violation(what: string): FormatViolationError {
    const text = `a frame of ${this.stream} from ${this.writer} is ${what}`;
    return new FormatViolationError(text, { stream_id: this.stream });
  }
}

/** The head of a raw frame; undefined where it is malformed. */
export function headOf(message: string | Uint8Array): Head | undefined {
  if (typeof message === "string") return headBefore(message.indexOf("#", 1), message);
  const end = message.indexOf(HASH, 1);
  const text = decoder.decode(message.subarray(0, end + 1));
  const head = headBefore(text.length - 1, text);
  return head && { ...head, end: end + 1 };
}

/** The head in a text, which ends before `end`. This runs for every frame, so that nothing is cut out without need. */
function headBefore(end: number, text: string): Head | undefined {
  const first = text.indexOf("|", 1);
  const second = text.indexOf("|", first + 1);
  if (first < 2 || second < first + 2 || second > end) return undefined;
  let seq = 0;
  for (let at = first + 1; at < second; at++) {
    const digit = text.charCodeAt(at) - 0x30;
    if (digit < 0 || digit > 9) return undefined;
    seq = seq * 10 + digit;
  }
  if (!Number.isSafeInteger(seq)) return undefined;
  return { stream: text.slice(1, first), seq, writer: text.slice(second + 1, end), end: end + 1 };
}

/** The frame that a `stream/data` envelope is. */
export function frameOf(message: Message): Frame {
  const { payload } = message;
  return new Frame(
    { stream: streamOf(payload), writer: message.from, seq: message.seq ?? 0 },
    JSON.stringify(payload["content"] ?? null),
    { sequence: integer(payload["sequence"]), formatId: string(payload["format_id"]) },
  );
}
