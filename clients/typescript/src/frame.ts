import { FormatViolationError } from "./errors.js";
import type { Message } from "./wire.js";
import { integer, streamOf, string } from "./wire.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true });

const HASH = 0x23;
const DIGITS = /^[0-9]+$/;

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
  const end = typeof message === "string" ? message.indexOf("#", 1) : message.indexOf(HASH, 1);
  if (end < 0) return undefined;
  const head = typeof message === "string" ? message.slice(1, end) : decoder.decode(message.subarray(1, end));
  const first = head.indexOf("|");
  const second = head.indexOf("|", first + 1);
  if (first < 1 || second < 0) return undefined;
  const digits = head.slice(first + 1, second);
  const seq = Number(digits);
  return DIGITS.test(digits) && Number.isSafeInteger(seq)
    ? { stream: head.slice(0, first), seq, writer: head.slice(second + 1), end: end + 1 }
    : undefined;
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
