import { SMALL } from "./confirmations.js";
import type { MewError } from "./errors.js";
import { refusal } from "./refusals.js";
import type { Message } from "./wire.js";
import { GATEWAY } from "./wire.js";

interface Call {
  readonly body: string;
  /** The kind of message that answers it; undefined where that is our own message, relayed by the gateway. */
  readonly answer: string | undefined;
  /** Whose answer counts. Everyone sees the id of a request and could answer in another's place. */
  readonly answerers: readonly string[];
  resolve(answer: Message): void;
  reject(error: Error): void;
}

/**
 * Requests that have not been answered yet, by the id of their envelope. The gateway answers a repeated id as before,
 * so a request whose answer was lost with a connection is simply sent again.
 */
export class Calls {
  readonly #pending = new Map<string, Call>();
  #repeated: ReadonlySet<string> = new Set();
  readonly #prefix = randomText();
  #count = 0;

  /** A new id, which nobody can guess from those before it: the gateway refuses an id that another has used. */
  nextId(): string {
    return `${this.#prefix}-${++this.#count}-${randomText()}`;
  }

  begin(id: string, call: Call): void {
    this.#pending.set(id, call);
  }

  /** Nobody waits for this answer any longer. */
  forget(id: string): void {
    this.#pending.delete(id);
  }

  /** Hands a message to those whose requests it answers. Returns whether there are any. */
  received(message: Message): boolean {
    const own = this.#pending.get(message.id);
    let isAnswer = false;
    if (own && own.answer === undefined && own.answerers.includes(message.from)) {
      this.#settle(message.id, () => own.resolve(message));
      isAnswer = true;
    }
    for (const id of message.correlationId) {
      const call = this.#pending.get(id);
      if (!call) continue;
      if (message.kind === "system/error" && message.from === GATEWAY) {
        this.#settle(id, () => call.reject(refusal(message.payload)));
        isAnswer = true;
      } else if (message.kind === call.answer && call.answerers.includes(message.from)) {
        this.#settle(id, () => call.resolve(message));
        isAnswer = true;
      }
    }
    return isAnswer;
  }

  #settle(id: string, settle: () => void): void {
    this.#pending.delete(id);
    settle();
  }

  /** All unanswered requests in the order in which they were sent, to be sent again. */
  repeat(): string[] {
    this.#repeated = new Set(this.#pending.keys());
    return [...this.#pending.values()].map((call) => call.body);
  }

  /** Whether a message answers a request that was sent twice. Such an answer may come twice too. */
  answersRepeated(message: Message): boolean {
    return [message.id, ...message.correlationId].some((id) => this.#repeated.has(id));
  }

  /** Fails the largest request, if it is larger than `size`. Returns whether it is. */
  failLargest(error: MewError, size: number): boolean {
    const [id, call] = [...this.#pending].reduce<[string, Call | undefined]>(
      (most, each) => (each[1].body.length > (most[1]?.body.length ?? 0) ? each : most),
      ["", undefined],
    );
    if (!call || call.body.length <= Math.max(size, SMALL)) return false;
    this.#settle(id, () => call.reject(error));
    return true;
  }

  fail(error: MewError): void {
    for (const [id, call] of this.#pending) this.#settle(id, () => call.reject(error));
  }
}

/** 48 random bits. `crypto.randomUUID` is missing on pages that are not served securely. */
function randomText(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
