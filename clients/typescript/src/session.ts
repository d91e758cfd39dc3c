import { Calls } from "./calls.js";
import { CloseCode, NORMAL } from "./close-codes.js";
import { SMALL } from "./confirmations.js";
import type { ConnectionClosedError } from "./errors.js";
import { LimitExceededError, MewError, RequestTimeoutError } from "./errors.js";
import { Emitter } from "./emitter.js";
import type { SpaceEvent, SpaceEvents } from "./events.js";
import type { JoinOptions } from "./joining.js";
import type { Backoff, LinkOwner, Resume } from "./link.js";
import { Link } from "./link.js";
import { answerOf, Tools } from "./mcp.js";
import { Pages } from "./pages.js";
import type { Proposal } from "./proposals.js";
import { Proposals } from "./proposals.js";
import type { SubscribeOptions } from "./queue.js";
import { FrameQueue, Subscription } from "./queue.js";
import { Routes } from "./routes.js";
import { Stream } from "./stream.js";
import { within } from "./timing.js";
import { View } from "./view.js";
import type { JsonObject, Message } from "./wire.js";
import { encode, GATEWAY, integer, object, objects, string } from "./wire.js";

/** How a request is addressed, and what answers it. */
export interface CallOptions {
  readonly id?: string;
  readonly to?: readonly string[];
  readonly correlationId?: readonly string[];
  readonly context?: string;
  /** The kind of the answer; where it is left out, that is our own message as the gateway relays it. */
  readonly answer?: string;
  /** In milliseconds. */
  readonly timeout?: number;
}

export interface Settings {
  readonly backoff: Backoff | undefined;
  readonly requestTimeout: number;
  readonly heartbeat: number;
}

/** How many of each are remembered; the oldest are forgotten. */
const MAX_REMEMBERED = 1000;

/** Hands what the gateway sends to the view, to pending calls, to subscriptions and to our tools. None of it waits. */
export class Session implements LinkOwner {
  readonly events = new Emitter<SpaceEvents>();
  readonly routes = new Routes();
  readonly view: View;
  readonly link: Link;
  readonly pages: Pages;
  readonly tools: Tools;
  readonly #calls = new Calls();
  readonly #proposals = new Proposals();
  readonly #requestTimeout: number;
  /** Requests for streams that nobody waits for any longer. */
  readonly #abandoned = new Set<string>();
  /** Grants of capabilities that were acknowledged: a resume may bring one again. */
  readonly #acknowledged = new Set<string>();

  constructor(join: JoinOptions, settings: Settings) {
    this.#requestTimeout = settings.requestTimeout;
    this.view = new View(join.participant ?? "", (described) => new Stream(this, described));
    this.pages = new Pages(this.view, (kind, payload) => this.post(kind, payload));
    this.tools = new Tools((request, answer) => this.respond(request.message, answer));
    this.link = new Link(join, this, settings);
  }

  nextId(): string {
    return this.#calls.nextId();
  }

  // -- sending --------------------------------------------------------------------------------------

  /** Sends an envelope if there is a connection, and waits for nothing. Returns its id. */
  post(kind: string, payload: JsonObject): string {
    const id = this.nextId();
    this.link.post(encode(kind, payload, { id }));
    return id;
  }

  /** Sends an envelope, and resolves to the message that answers it. */
  async call(kind: string, payload: JsonObject, options: CallOptions = {}): Promise<Message> {
    const { id = this.nextId(), to, correlationId, context, answer, timeout = this.#requestTimeout } = options;
    const body = encode(kind, payload, { id, to, correlation_id: correlationId, context });
    let isOver = false;
    const answered = new Promise<Message>((resolve, reject) => {
      const sent = this.link.whenReady((connection) => {
        if (isOver) return;
        this.#calls.begin(id, { body, answer, answerers: this.#answerers(answer, to), resolve, reject });
        connection.send(body);
      });
      sent.catch(reject);
    });
    try {
      return await within(answered, timeout, `${kind} was not answered within ${timeout} ms`);
    } finally {
      isOver = true;
      this.#calls.forget(id);
    }
  }

  #answerers(answer: string | undefined, to: readonly string[] = []): readonly string[] {
    if (answer === undefined) return [this.view.me];
    return answer === "mcp/response" ? to : [GATEWAY];
  }

  async respond(request: Message, answer: unknown): Promise<void> {
    await this.call("mcp/response", answerOf(answer), { to: [request.from], correlationId: [request.id] });
  }

  async open(kind: "stream/request" | "stream/announce", fields: JsonObject): Promise<Stream> {
    const id = this.nextId();
    let answer: Message;
    try {
      answer = await this.call(kind, fields, {
        id,
        answer: kind === "stream/request" ? "stream/open" : "stream/ready",
      });
    } catch (error) {
      // The stream may still be opened, and nobody would have it.
      if (error instanceof RequestTimeoutError) remember(this.#abandoned, id);
      throw error;
    }
    const described = kind === "stream/request" ? answer.payload : object(answer.payload["stream"]);
    const stream = string(described["stream_id"]);
    if (!stream) throw new MewError("the gateway answered without the id of the stream");
    // The view knows it already, unless somebody was quick to end it.
    return this.view.streams.get(stream) ?? new Stream(this, described);
  }

  async propose(proposal: Proposal, payload: JsonObject): Promise<void> {
    this.#proposals.add(proposal);
    await this.call("mcp/proposal", payload, { id: proposal.id, to: proposal.to.length ? proposal.to : undefined });
  }

  subscribe(stream: Stream | string | undefined, options: SubscribeOptions = {}): Subscription {
    const queue = new FrameQueue(options);
    if (this.link.error || (stream instanceof Stream && !stream.isOpen)) {
      queue.end(this.link.error?.code === NORMAL ? undefined : this.link.error);
      return new Subscription(queue, () => undefined);
    }
    const name = stream instanceof Stream ? stream.id : stream;
    const known = name === undefined ? undefined : this.view.streams.get(name);
    return new Subscription(queue, this.routes.add(queue, known?.id ?? name, known !== undefined));
  }

  // -- receiving ------------------------------------------------------------------------------------

  envelope(message: Message): void {
    const isFromGateway = message.from === GATEWAY;
    switch (message.kind) {
      case "stream/data":
        this.routes.data(message);
        return;
      case "stream/synced":
        if (isFromGateway) message.correlationId.forEach((id) => this.link.synced(id));
        return;
      case "stream/listed":
      case "participant/listed":
        if (isFromGateway) this.#page(message);
        return;
      case "system/welcome":
        if (isFromGateway) this.#welcomedAgain(message);
        return;
      case "space/invite-ack": // it holds a token, and is for the caller alone
        this.#calls.received(message);
        return;
    }
    const isSeen = message.seq !== undefined && message.seq <= this.link.position.seq;
    if (isSeen && this.#calls.answersRepeated(message)) this.#calls.received(message);
    else this.#message(message);
  }

  #message(message: Message): void {
    const event = this.view.apply(message);
    const isAnswer = this.#calls.received(message);
    this.#proposals.received(message);
    if (message.kind === "capability/grant") this.#acknowledge(message);
    // The caller of a request gets its refusal as an exception.
    if (event && !(event.type === "refused" && isAnswer)) this.#publish(event);
  }

  #page(page: Message): void {
    const found = this.pages.received(page);
    for (const stream of objects(page.payload["streams"])) {
      this.routes.streamOpened(string(stream["stream_id"]) ?? "", string(stream["alias"]));
    }
    found.forEach((event) => this.#publish(event));
  }

  /** Our capabilities have changed. */
  #welcomedAgain(message: Message): void {
    this.view.welcome(message, false).forEach((event) => this.#publish(event));
    this.pages.welcomed(message, true);
    this.#publish({ type: "capabilitiesChanged", capabilities: this.view.capabilities, message });
  }

  /** The spec (3.6.3) asks the recipient of a grant to acknowledge it. */
  #acknowledge(grant: Message): void {
    if (!grant.id || grant.payload["recipient"] !== this.view.me || this.#acknowledged.has(grant.id)) return;
    remember(this.#acknowledged, grant.id);
    const options = { to: [grant.from], correlationId: [grant.id] };
    this.call("capability/grant-ack", { status: "accepted" }, options).catch(() => undefined);
  }

  #publish(event: SpaceEvent): void {
    switch (event.type) {
      case "streamOpened":
        this.routes.streamOpened(event.stream.id, event.stream.alias);
        this.#closeAbandoned(event.stream.id, event.message);
        break;
      case "streamClosed":
        this.routes.streamEnded(event.stream);
        break;
      case "refused":
        this.view.streams.get(string(event.error.details["stream_id"]) ?? "")?.refused(event.error);
        break;
      case "gap":
        if (event.stream !== undefined) {
          const firstSeq = integer(event.message.payload["first_seq"]) ?? 0;
          this.routes.framesDropped(event.stream, event.count ?? 1, firstSeq);
        }
        break;
      case "requested":
        if (event.to.includes(this.view.me)) this.tools.received(event);
        break;
    }
    this.events.emit(event.type, event as never);
    this.events.emit("*", event);
  }

  #closeAbandoned(stream: string, opened: Message): void {
    for (const request of opened.correlationId) {
      if (this.#abandoned.delete(request)) this.post("stream/close", { stream_id: stream });
    }
  }

  // -- the connection -------------------------------------------------------------------------------

  welcomed(welcome: Message, resume: Resume | undefined): void {
    const isReplayDue = resume?.recovered === true;
    const found = this.view.welcome(welcome, isReplayDue);
    for (const stream of this.view.streams.values()) this.routes.streamOpened(stream.id, stream.alias);
    this.pages.welcomed(welcome, resume !== undefined && !isReplayDue);
    if (!resume) return;
    if (!resume.recovered) {
      this.routes.framesLost();
      this.#publish({ type: "gap", reason: resume.reason ?? "", message: welcome });
    }
    found.forEach((event) => this.#publish(event));
    this.#publish({ type: "resumed", ...resume });
    for (const body of this.#calls.repeat()) this.link.post(body);
  }

  /** What was too large for the gateway must not be sent again. The gateway has not read it: it must be the largest. */
  connectionLost(code: number): void {
    if (code !== CloseCode.TOO_BIG) return;
    const error = new LimitExceededError("the message is larger than the gateway takes", { limit: "message_bytes" });
    const streams = [...this.view.streams.values()].sort((a, b) => b.tally.largest - a.tally.largest);
    const largest = streams[0]?.tally.largest ?? 0;
    if (!this.#calls.failLargest(error, largest) && largest > SMALL) streams[0]?.refused(error);
  }

  disconnected(reason: string): void {
    this.#publish({ type: "disconnected", reason });
  }

  ended(error: ConnectionClosedError): void {
    this.#calls.fail(error);
    this.#proposals.end(error);
    this.pages.end();
    this.routes.end(error.code === NORMAL ? undefined : error);
  }
}

function remember(ids: Set<string>, id: string): void {
  ids.add(id);
  const [oldest] = ids;
  if (ids.size > MAX_REMEMBERED && oldest !== undefined) ids.delete(oldest);
}
