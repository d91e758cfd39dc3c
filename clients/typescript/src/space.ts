import { NORMAL } from "./close-codes.js";
import type { ConnectionClosedError } from "./errors.js";
import { AlreadyExistsError } from "./errors.js";
import { refusal } from "./refusals.js";
import type { Proposed, Requested, SpaceEvents } from "./events.js";
import type { LiveMap } from "./live-map.js";
import type { ToolHandler, ToolOptions } from "./mcp.js";
import { resultOf } from "./mcp.js";
import { Proposal } from "./proposals.js";
import type { SubscribeOptions, Subscription } from "./queue.js";
import type { Session } from "./session.js";
import type { AnnounceOptions, Reason, Stream, StreamOptions } from "./stream.js";
import { fieldsOf } from "./stream.js";
import { within } from "./timing.js";
import type { Participant } from "./view.js";
import type { Capability, JsonObject, Message, Position } from "./wire.js";
import { names, string } from "./wire.js";

/** One participant or several. */
export type To = string | readonly string[];

/** How a message is sent. */
export interface MessageOptions {
  /** Whom it is meant for. Everyone gets it all the same. */
  readonly to?: To;
  /** The ids of the messages that it answers or belongs to. */
  readonly correlationId?: To;
  /** A path such as `parent/child`. */
  readonly context?: string;
}

/** Whom a request is for, and how long to wait for the answer. */
export interface RequestOptions {
  /** Who is to answer. Of several, the first answer counts. */
  readonly to: To;
  /** In milliseconds; the space's `requestTimeout` by default. */
  readonly timeout?: number;
}

/** What an invited participant needs to join. The token is told here once, and nowhere else. */
export interface Invitation {
  readonly participant: string;
  readonly token: string;
  readonly url?: string;
}

/**
 * A space that we have joined, made by {@link connect}.
 *
 * Everything that acts waits until the gateway has carried it out, and rejects with a {@link RefusedError} where it
 * refuses, with {@link RequestTimeoutError} where no answer comes in time (it is then not known whether it was carried
 * out), and with {@link ConnectionClosedError} where the space has ended.
 */
export class Space {
  readonly #session: Session;

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
  }

  // -- the state of the space -----------------------------------------------------------------------

  /** Our own id. */
  get participant(): string {
    return this.#session.view.me;
  }

  /** The capabilities that we hold now. */
  get capabilities(): readonly Capability[] {
    return this.#session.view.capabilities;
  }

  /** The other participants, by id: a live view with events. */
  get participants(): LiveMap<Participant> {
    return this.#session.view.participants;
  }

  /** The open streams, by id or alias: a live view with events. */
  get streams(): LiveMap<Stream> {
    return this.#session.view.streams;
  }

  /** The place of the newest message that was received. */
  get position(): Position {
    return this.#session.link.position;
  }

  /** Whether there is a connection now. */
  get isConnected(): boolean {
    return this.#session.link.isConnected;
  }

  /** Resolves when the space has ended for good: to the reason, or to undefined where we ended it ourselves. */
  get closed(): Promise<ConnectionClosedError | undefined> {
    return this.#session.link.closed.then((error) => (error.code === NORMAL ? undefined : error));
  }

  /**
   * Calls `listener` for every event of this type from now on, or for every event where the type is `*`. What an event
   * tells is in the views already.
   *
   * @returns a function that removes the listener.
   */
  on<Type extends keyof SpaceEvents>(type: Type, listener: (event: SpaceEvents[Type]) => void): () => void {
    return this.#session.events.on(type, listener);
  }

  // -- streams --------------------------------------------------------------------------------------

  /**
   * Opens a stream that is live at once, and resolves to it. Rejects with {@link CapabilityViolationError},
   * {@link TargetNotFoundError} and what every request does.
   */
  open(options: StreamOptions = {}): Promise<Stream> {
    return this.#session.open("stream/request", fieldsOf(options));
  }

  /**
   * Opens a stream by handshake, and resolves to it: frames can be sent after `start()`, and are numbered. Rejects as
   * {@link open} does.
   */
  announce(options: AnnounceOptions = {}): Promise<Stream> {
    return this.#session.open("stream/announce", fieldsOf(options));
  }

  /**
   * Waits until a stream of this id or alias is open, for at most `timeout` milliseconds if that is given, and resolves
   * to it. Rejects with {@link RequestTimeoutError}, and with {@link ConnectionClosedError} where the space ends first.
   */
  async stream(name: string, { timeout }: { readonly timeout?: number } = {}): Promise<Stream> {
    let remove = (): void => undefined;
    const opened = new Promise<Stream>((resolve, reject) => {
      const look = (): void => {
        const stream = this.streams.get(name);
        if (stream) resolve(stream);
      };
      remove = this.streams.on("added", look);
      look();
      void this.#session.link.closed.then(reject);
    });
    try {
      return await within(opened, timeout, `nobody opened ${name} within ${timeout} ms`);
    } finally {
      remove();
    }
  }

  /**
   * Receives the frames of a stream from now on, or of all streams. A name may be that of a stream that is not open
   * yet.
   *
   * @throws TypeError or RangeError for options that do not exist.
   */
  subscribe(stream?: Stream | string, options?: SubscribeOptions): Subscription {
    return this.#session.subscribe(stream, options);
  }

  /**
   * Waits until the gateway has recorded every frame sent so far, as safely as its durability promises.
   *
   * Rejects with {@link FramesUnconfirmedError} where a connection was lost before it confirmed some of them, with
   * {@link RequestTimeoutError} and {@link ConnectionClosedError}.
   */
  flush(): Promise<void> {
    return this.#session.link.flush();
  }

  // -- messages -------------------------------------------------------------------------------------

  /** Sends an envelope of any kind to everyone, and resolves to it as the gateway relayed it. */
  send(kind: string, payload: JsonObject = {}, options: MessageOptions = {}): Promise<Message> {
    return this.#session.call(kind, payload, {
      to: list(options.to),
      correlationId: list(options.correlationId),
      context: options.context,
    });
  }

  /** Sends a chat message, as {@link send} does. */
  chat(text: string, options?: MessageOptions): Promise<Message> {
    return this.send("chat", { text }, options);
  }

  /** Sends an MCP request, and resolves to the result. Rejects with {@link McpError} where the answer is an error. */
  async request(method: string, params: unknown, { to, timeout }: RequestOptions): Promise<unknown> {
    const options = { to: list(to), timeout, answer: "mcp/response" };
    return resultOf(await this.#session.call("mcp/request", { method, params }, options));
  }

  /** Calls a tool of another participant, as {@link request} does. */
  callTool(name: string, args: JsonObject, options: RequestOptions): Promise<unknown> {
    return this.request("tools/call", { name, arguments: args }, options);
  }

  /** Answers an MCP request that came as an event: with a result, or with an {@link McpError}. */
  respond(request: Requested, answer: unknown): Promise<void> {
    return this.#session.respond(request.message, answer);
  }

  /** Serves an MCP tool to the space, until the space ends. */
  tool(name: string, options: ToolOptions, handler: ToolHandler): void {
    this.#session.tools.add(name, options, handler);
  }

  // -- proposals ------------------------------------------------------------------------------------

  /** Proposes a request that we may not make ourselves, and resolves to the {@link Proposal}. */
  async propose(method: string, params?: unknown, { to }: { readonly to?: To } = {}): Promise<Proposal> {
    const proposal = new Proposal(this.#session, this.#session.nextId(), list(to) ?? []);
    await this.#session.propose(proposal, { method, params });
    return proposal;
  }

  /**
   * Makes the request that another has proposed, in our own name. Resolves and rejects as {@link request} does.
   *
   * @throws TypeError where neither `to` nor the proposal says who is to carry it out.
   */
  async fulfil(proposal: Proposed, { to, timeout }: Partial<RequestOptions> = {}): Promise<unknown> {
    const target = list(to) ?? proposal.to;
    if (target.length === 0)
      throw new TypeError("the proposal does not say who is to carry it out: give the option to");
    const { method, params } = proposal;
    const options = { to: target, timeout, correlationId: [proposal.proposal], answer: "mcp/response" };
    return resultOf(await this.#session.call("mcp/request", { method, params }, options));
  }

  /** Rejects a proposal of another. */
  async reject(proposal: Proposed, { reason }: Reason = {}): Promise<void> {
    await this.#session.call("mcp/reject", { reason }, { correlationId: [proposal.proposal] });
  }

  // -- participants ---------------------------------------------------------------------------------

  /** Invites somebody new, and resolves to what they need to join. Rejects with {@link AlreadyExistsError}. */
  async invite(
    participant: string,
    { capabilities }: { readonly capabilities?: readonly Capability[] } = {},
  ): Promise<Invitation> {
    const payload = { participant_id: participant, capabilities };
    const { payload: answer } = await this.#session.call("space/invite", payload, { answer: "space/invite-ack" });
    if (answer["status"] !== "created") throw refusal({ message: `${participant} could not be invited`, ...answer });
    const token = string(answer["token"]);
    if (!token)
      throw new AlreadyExistsError(`${participant} was invited before and has joined: the token is not told again`);
    return { participant, token, url: string(answer["connection_url"]) };
  }

  /** Removes a participant from the space. Rejects with {@link ParticipantNotFoundError}. */
  async kick(participant: string, { reason }: Reason = {}): Promise<void> {
    await this.#session.call("space/kick", { participant_id: participant, reason });
  }

  /** Grants capabilities that we hold, and resolves to the id of the grant. */
  async grantCapabilities(
    participant: string,
    capabilities: readonly Capability[],
    { reason }: Reason = {},
  ): Promise<string> {
    const payload = { recipient: participant, capabilities, reason };
    return (await this.#session.call("capability/grant", payload, { to: [participant] })).id;
  }

  /** Takes granted capabilities back: those of one grant, by its id, or all that these patterns include. */
  async revokeCapabilities(
    participant: string,
    what: string | readonly Capability[],
    { reason }: Reason = {},
  ): Promise<void> {
    const which = typeof what === "string" ? { grant_id: what } : { capabilities: what };
    await this.#session.call("capability/revoke", { recipient: participant, ...which, reason }, { to: [participant] });
  }

  // -- the end --------------------------------------------------------------------------------------

  /**
   * Sends nothing more, waits until what was sent is recorded, and leaves. What has been received can still be taken
   * from subscriptions. Rejects as {@link flush} does, when we have left.
   */
  drain(): Promise<void> {
    return this.#session.link.drain();
  }

  /** Leaves at once. What has been received can still be taken from subscriptions. */
  close(): Promise<void> {
    return this.#session.link.close();
  }
}

function list(to: To | undefined): string[] | undefined {
  return to === undefined ? undefined : names(to);
}
