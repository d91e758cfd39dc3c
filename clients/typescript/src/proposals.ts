import type { ConnectionClosedError } from "./errors.js";
import { MewError, ProposalRejectedError } from "./errors.js";
import { resultOf } from "./mcp.js";
import type { Session } from "./session.js";
import type { Reason } from "./stream.js";
import { within } from "./timing.js";
import type { Message } from "./wire.js";
import { string } from "./wire.js";

/** How many proposals, and requests that claim to fulfil them, are followed; the oldest are given up. */
const MAX_FOLLOWED = 1000;

/** A request that we have proposed. Somebody who may make that request fulfils the proposal, or rejects it. */
export class Proposal {
  readonly #session: Session;
  readonly #outcome: Promise<Message>;
  #isSettled = false;
  /** @internal */
  settle!: (response: Message) => void;
  /** @internal */
  fail!: (error: Error) => void;

  /** @internal */
  constructor(
    session: Session,
    /** The id by which others name it. */
    readonly id: string,
    /** @internal */
    readonly to: readonly string[],
  ) {
    this.#session = session;
    this.#outcome = new Promise((resolve, reject) => {
      this.settle = resolve;
      this.fail = reject;
    });
    // Nobody has to wait for the outcome.
    this.#outcome.catch(() => undefined).finally(() => (this.#isSettled = true));
  }

  /** Whether it was fulfilled, rejected or withdrawn. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /**
   * Waits for the result, for at most `timeout` milliseconds if that is given, and resolves to it.
   *
   * Rejects with {@link ProposalRejectedError}, with {@link McpError} where carrying it out failed, with
   * {@link RequestTimeoutError} and {@link ConnectionClosedError}.
   */
  async result({ timeout }: { readonly timeout?: number } = {}): Promise<unknown> {
    const text = `nobody fulfilled or rejected the proposal within ${timeout} ms`;
    return resultOf(await within(this.#outcome, timeout, text));
  }

  /** Takes it back: {@link result} rejects with {@link ProposalRejectedError}. */
  async withdraw({ reason }: Reason = {}): Promise<void> {
    await this.#session.call("mcp/withdraw", { reason }, { correlationId: [this.id] });
    this.fail(new ProposalRejectedError("the proposal was withdrawn", this.#session.view.me));
  }
}

/** Our proposals that are open, and the requests by which others fulfil them. */
export class Proposals {
  readonly #open = new Map<string, Proposal>();
  readonly #requests = new Map<string, { proposal: Proposal; to: readonly string[] }>();

  add(proposal: Proposal): void {
    this.#open.set(proposal.id, proposal);
    const [oldest] = this.#open.values();
    if (this.#open.size > MAX_FOLLOWED && oldest) {
      this.#open.delete(oldest.id);
      oldest.fail(new MewError(`the proposal is not followed any longer: more than ${MAX_FOLLOWED} are open`));
    }
  }

  /** Settles the proposals that a message fulfils or rejects. */
  received(message: Message): void {
    if (this.#open.size === 0) return;
    for (const id of message.correlationId) {
      const proposal = this.#open.get(id);
      if (message.kind === "mcp/request" && proposal) {
        this.#requests.set(message.id, { proposal, to: message.to });
        const [oldest] = this.#requests.keys();
        if (this.#requests.size > MAX_FOLLOWED && oldest !== undefined) this.#requests.delete(oldest);
      } else if (message.kind === "mcp/response") this.#answered(id, message);
      else if (message.kind === "mcp/reject" && proposal) {
        const reason = string(message.payload["reason"]) || "no reason was given";
        this.#open.delete(id);
        proposal.fail(new ProposalRejectedError(`${message.from} rejected the proposal: ${reason}`, message.from));
      }
    }
  }

  /** Settles the proposal by an answer, which counts only from those who were asked: anybody could send one. */
  #answered(id: string, response: Message): void {
    const fulfilment = this.#requests.get(id);
    const proposal = fulfilment?.proposal ?? this.#open.get(id);
    const asked = fulfilment?.to ?? proposal?.to ?? [];
    if (!proposal || !asked.includes(response.from)) return;
    this.#requests.delete(id);
    this.#open.delete(proposal.id);
    proposal.settle(response);
  }

  /** The space has ended, and with it every proposal. */
  end(error: ConnectionClosedError): void {
    for (const proposal of this.#open.values()) proposal.fail(error);
    this.#open.clear();
  }
}
