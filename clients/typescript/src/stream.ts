import { Tally } from "./confirmations.js";
import type { RefusedError } from "./errors.js";
import {
  FramesUnconfirmedError,
  InvalidOperationError,
  StreamNotFoundError,
  UnauthorizedStreamWriteError,
} from "./errors.js";
import type { Conditions, Ending } from "./events.js";
import { conditionsOf } from "./events.js";
import type { SubscribeOptions, Subscription } from "./queue.js";
import type { Session } from "./session.js";
import type { JsonObject } from "./wire.js";
import { encode, integer, object, objects, string, strings } from "./wire.js";

/** What the frames of a stream contain, as its creator declares it. */
export interface Format {
  readonly id: string;
  /** JSON Schema 2020-12. */
  readonly schema?: JsonObject | boolean;
  readonly mimeType?: string;
  readonly description?: string;
  /** From the gateway; equal schemas have equal hashes. */
  readonly schemaHash?: string;
}

/** What a new stream is to be. All of it is shown to everyone. */
export interface StreamOptions {
  readonly description?: string;
  readonly contentType?: string;
  readonly direction?: "upload" | "download";
  /** Who may read; everyone where it is left out. */
  readonly target?: readonly string[];
  /** Who gets the right to write automatically, now or when they join. */
  readonly autoGrant?: readonly string[];
  /** The alias that the stream gets, if it is free. */
  readonly desiredId?: string;
  readonly formats?: readonly Format[];
  /** Whether the gateway checks the content of all writers against the formats. */
  readonly enforceFormats?: boolean;
  /** What happens to readers that do not keep up. */
  readonly onSlow?: "drop-oldest" | "latest" | "disconnect";
  readonly onOwnerLeave?: "keep" | "transfer" | "close";
  /** After how many seconds `onOwnerLeave` applies. */
  readonly ownerLeaveGrace?: number;
  /** Anything else that is to be known about it. */
  readonly metadata?: JsonObject;
}

/** What an announced stream is to be. */
export interface AnnounceOptions extends StreamOptions {
  readonly intent?: string;
  /** Whom the announcement is meant for. */
  readonly scope?: readonly string[];
}

/** How to send a frame. */
export interface SendOptions {
  /** Which of several formats the frame has. */
  readonly format?: string;
  /**
   * Whether to send it with a sequence number, by which readers notice what is missing. By default only frames of
   * announced streams have one, and bytes never.
   */
  readonly numbered?: boolean;
}

/** How to let somebody write. */
export interface GrantOptions {
  readonly reason?: string;
  readonly expiresAt?: Date;
  readonly maxFrames?: number;
  /** A writer that loses the right at the same moment, so that both are never writers. */
  readonly replaces?: string;
  /**
   * Lets the participant grant the right in turn, never more than it has: with a depth of 1 to writers that cannot, with
   * 2 to delegates of depth 1, and so on. `maxWriters` bounds how many are below it.
   */
  readonly delegate?: { readonly depth: number; readonly maxWriters?: number };
}

/** Somebody who may pass the right to write on, or holds it from somebody who could. */
export interface Delegation {
  readonly participant: string;
  /** Who granted it. */
  readonly by: string;
  /** How far it may be passed on; 0 at the end of a chain. */
  readonly depth: number;
}

/** Somebody who asks for the right to write. */
export interface WriteRequest {
  readonly participant: string;
  readonly reason?: string;
  /** When they asked first, in the form of RFC 3339. */
  readonly ts?: string;
}

/** Why a right or a stream changes, for everyone to read. */
export interface Reason {
  readonly reason?: string;
}

/** What can be sent as a frame: bytes as they are, text as text, anything else as JSON. */
export type FrameData = string | Uint8Array | JsonObject | readonly unknown[] | number | boolean | null;

/** Fields of a description that the gateway sets; all others came with the request. */
const GATEWAY_FIELDS: ReadonlySet<string> = new Set([
  ...["stream_id", "namespace", "owner", "owner_connected", "authorized_writers", "authorized_readers", "created"],
  ...["status", "encoding", "last_seq", "alias", "formats", "conditions", "capabilities"],
  ...["write_requests", "delegations"],
]);

const encoder = new TextEncoder();

/**
 * A stream of a space. Its properties are always up to date.
 *
 * Its methods wait until the gateway has carried them out, and reject with a {@link RefusedError} where it refuses
 * ({@link StreamNotFoundError} where the stream has ended, {@link UnauthorizedError} where we have no right), with
 * {@link RequestTimeoutError} where no answer comes, and with {@link ConnectionClosedError} where the space has ended.
 */
export class Stream {
  /** The id that the gateway has given it, such as `stream-1`. */
  readonly id: string;
  readonly #session: Session;
  #described: JsonObject = {};
  #writers: ReadonlySet<string> = new Set();
  #status: "ready" | "live" | Ending = "live";
  #sequence = 0;
  #refusal: RefusedError | undefined;
  /** @internal */
  readonly tally = new Tally();
  /** The ids of the messages that opened it, by which a close may name it. @internal */
  readonly openedBy = new Set<string>();

  /** @internal */
  constructor(session: Session, described: JsonObject) {
    this.id = string(described["stream_id"]) ?? "";
    this.#session = session;
    this.describe(described);
  }

  // -- state ----------------------------------------------------------------------------------------

  /** The participant who may grant, revoke, transfer and close. */
  get owner(): string {
    return string(this.#described["owner"]) ?? "";
  }

  /** Whether the owner is in the space now. */
  get ownerConnected(): boolean {
    return this.#described["owner_connected"] !== false;
  }

  /** Whether we own it. */
  get isMine(): boolean {
    return this.owner === this.#session.view.me;
  }

  /** The participants who may write, the owner among them. */
  get writers(): string[] {
    return [...this.#writers];
  }

  /** The participants who may read; undefined where everyone may. */
  get readers(): string[] | undefined {
    const readers = this.#described["authorized_readers"];
    return readers === undefined ? undefined : strings(readers);
  }

  /** The conditions of writers whose right has some. */
  get conditions(): ReadonlyMap<string, Conditions> {
    const all = Object.entries(object(this.#described["conditions"]));
    return new Map(all.map(([writer, conditions]) => [writer, conditionsOf(object(conditions)) ?? {}]));
  }

  /** Who may pass the right to write on, and those who hold it from them. */
  get delegations(): Delegation[] {
    return objects(this.#described["delegations"]).map((each) => ({
      participant: string(each["participant_id"]) ?? "",
      by: string(each["by"]) ?? "",
      depth: integer(each["depth"]) ?? 0,
    }));
  }

  /** Those who ask for the right to write, in the order in which they asked. */
  get writeRequests(): WriteRequest[] {
    return objects(this.#described["write_requests"]).map((each) => ({
      participant: string(each["participant_id"]) ?? "",
      reason: string(each["reason"]),
      ts: string(each["ts"]),
    }));
  }

  /** `ready` (announced, not started), `live`, or how it ended. */
  get status(): "ready" | "live" | Ending {
    return this.#status;
  }

  /** Whether it is ready or live. */
  get isOpen(): boolean {
    return this.#status === "ready" || this.#status === "live";
  }

  /** Whether it was opened by {@link Space.announce}, so that its frames are numbered. */
  get isAnnounced(): boolean {
    return "capabilities" in this.#described;
  }

  /** A name that finds the stream as its id does. */
  get alias(): string | undefined {
    return string(this.#described["alias"]);
  }

  /** `<space>/<id>`. */
  get namespace(): string | undefined {
    return string(this.#described["namespace"]);
  }

  /** When it was opened, in the form of RFC 3339. */
  get created(): string | undefined {
    return string(this.#described["created"]);
  }

  get description(): string | undefined {
    return string(this.#described["description"]);
  }

  get contentType(): string | undefined {
    return string(this.#described["content_type"]);
  }

  /** The formats that its frames may have; empty where it declares none. */
  get formats(): Format[] {
    return objects(this.#described["formats"]).map(formatOf);
  }

  /** All fields of the request that opened it, and the entries of the request's own `metadata`. */
  get metadata(): JsonObject {
    const fields = Object.entries(this.#described).filter(([name]) => !GATEWAY_FIELDS.has(name));
    return { ...Object.fromEntries(fields), ...object(this.#described["metadata"]) };
  }

  // -- writing --------------------------------------------------------------------------------------

  /**
   * Sends a frame. Waits while the gateway is slower than we are, and while a lost connection is being restored;
   * {@link flush} waits until frames are recorded.
   *
   * Rejects with {@link UnauthorizedStreamWriteError}, {@link StreamNotFoundError} or {@link InvalidOperationError}
   * where we may not write now, with the {@link RefusedError} by which the gateway has refused an earlier frame, and
   * with {@link ConnectionClosedError}.
   */
  async send(data: FrameData, { format, numbered }: SendOptions = {}): Promise<void> {
    this.#reportRefusal();
    if (!this.#isWritable) await this.#becomeWritable();
    const isBinary = data instanceof Uint8Array;
    if (numbered ?? (this.isAnnounced && !isBinary)) {
      if (isBinary) throw new TypeError("bytes cannot be numbered: that takes JSON");
      const payload = { stream: { stream_id: this.id }, sequence: ++this.#sequence, content: data, format_id: format };
      await this.#session.link.sendFrame(encode("stream/data", payload, { id: this.#session.nextId() }), this.tally);
      return;
    }
    if (format !== undefined) throw new TypeError("only a numbered frame can say its format");
    const message = isBinary
      ? bytes(`#${this.id}#`, data)
      : `#${this.id}#${typeof data === "string" ? data : JSON.stringify(data)}`;
    await this.#session.link.sendFrame(message, this.tally);
  }

  get #isWritable(): boolean {
    return this.#status === "live" && this.#writers.has(this.#session.view.me);
  }

  /** Waits for a grant that may be on its way: after a round trip, we have received everything sent before it. */
  async #becomeWritable(): Promise<void> {
    const details = { stream_id: this.id };
    if (this.isOpen) await this.#session.link.roundTrip();
    if (!this.isOpen) throw new StreamNotFoundError(`${this.id} has ended (${this.#status})`, details);
    if (this.#status === "ready") {
      throw new InvalidOperationError(`${this.id} is announced and not started: call start() first`, details);
    }
    if (!this.#isWritable) {
      const text = `${this.#session.view.me} may not write to ${this.id}: ask ${this.owner} for it`;
      throw new UnauthorizedStreamWriteError(text, details);
    }
  }

  /**
   * Waits until the gateway has recorded every frame sent so far, as safely as its durability promises.
   *
   * Rejects with the {@link RefusedError} by which it has refused one, with {@link FramesUnconfirmedError} where a
   * connection was lost before it confirmed some of them, with {@link RequestTimeoutError} and
   * {@link ConnectionClosedError}.
   */
  async flush(): Promise<void> {
    try {
      await this.#session.link.roundTrip(this.tally);
    } catch (error) {
      if (error instanceof FramesUnconfirmedError) this.#reportRefusal(); // it may be why the connection was lost
      throw error;
    }
    this.#reportRefusal();
  }

  #reportRefusal(): void {
    const refusal = this.#refusal;
    this.#refusal = undefined;
    if (refusal) throw refusal;
  }

  /** Receives its frames from now on, as {@link Space.subscribe} does. */
  subscribe(options?: SubscribeOptions): Subscription {
    return this.#session.subscribe(this, options);
  }

  // -- rights ---------------------------------------------------------------------------------------

  /** Lets another participant write, under conditions if there are any. */
  async grant(participant: string, options: GrantOptions = {}): Promise<void> {
    const { reason, expiresAt, maxFrames, replaces, delegate } = options;
    const conditions = { expires_at: expiresAt?.toISOString(), max_frames: maxFrames };
    const hasConditions = expiresAt !== undefined || maxFrames !== undefined;
    await this.#change("stream/grant-write", "stream/write-granted", {
      participant_id: participant,
      reason,
      conditions: hasConditions ? conditions : undefined,
      replaces,
      delegate: delegate && { depth: delegate.depth, max_writers: delegate.maxWriters },
    });
  }

  /**
   * Lets another participant write in the place of the one who writes now, beside the owner; if there is none, it is
   * simply granted the right. Nobody writes in between, and never both. Rejects with {@link InvalidOperationError}, and
   * changes nothing, where somebody else was faster.
   *
   * @throws RangeError where several could be replaced: say which by `grant(to, { replaces })`.
   */
  async handOver(to: string, { reason }: Reason = {}): Promise<void> {
    const [writer, ...others] = this.writers.filter((each) => each !== this.owner && each !== to);
    if (others.length > 0) {
      const names = [writer, ...others].join(", ");
      throw new RangeError(`${this.id} has the writers ${names}: say by grant(to, { replaces }) whose place it is`);
    }
    await this.grant(to, { reason, replaces: writer });
  }

  /**
   * Asks for the right to write. Everyone is told; the answer is a `writeGranted` or `writeDenied` event. Asking again
   * replaces the reason. Rejects with {@link InvalidOperationError} where we may write already.
   */
  async ask({ reason }: Reason = {}): Promise<void> {
    await this.#session.call("stream/request-write", { stream_id: this.id, reason });
  }

  /** Says no to a participant that asks. Rejects with {@link InvalidOperationError} where it does not ask. */
  async denyWrite(participant: string, { reason }: Reason = {}): Promise<void> {
    await this.#change("stream/deny-write", "stream/write-denied", { participant_id: participant, reason });
  }

  /** Takes the right to write away. When it resolves, no further frame of that writer is accepted. */
  async revoke(participant: string, { reason }: Reason = {}): Promise<void> {
    await this.#change("stream/revoke-write", "stream/write-revoked", { participant_id: participant, reason });
  }

  /** Lets another participant read, where not everyone may. */
  async grantRead(participant: string, { reason }: Reason = {}): Promise<void> {
    await this.#change("stream/grant-read", "stream/read-granted", { participant_id: participant, reason });
  }

  /** Takes the right to read away. */
  async revokeRead(participant: string, { reason }: Reason = {}): Promise<void> {
    await this.#change("stream/revoke-read", "stream/read-revoked", { participant_id: participant, reason });
  }

  /** Makes another participant the owner. The previous owner loses the right to write, unless it is retained. */
  async transfer(
    newOwner: string,
    { reason, retainWrite }: Reason & { readonly retainWrite?: boolean } = {},
  ): Promise<void> {
    const payload = { new_owner: newOwner, reason, retain_write: retainWrite };
    await this.#change("stream/transfer-ownership", "stream/ownership-transferred", payload);
  }

  async #change(kind: string, answer: string, payload: JsonObject): Promise<void> {
    await this.#session.call(kind, { stream_id: this.id, ...payload }, { answer });
  }

  // -- lifecycle ------------------------------------------------------------------------------------

  /** Makes an announced stream live. */
  async start(): Promise<void> {
    await this.#session.call("stream/start", { stream: { stream_id: this.id } });
  }

  /** Ends an announced stream in order. */
  async complete(): Promise<void> {
    await this.#session.call("stream/complete", { stream: { stream_id: this.id } });
  }

  /** Ends an announced stream by an error, which every participant is sent. */
  async fail(code: string, message: string): Promise<void> {
    await this.#session.call("stream/error", { stream: { stream_id: this.id }, code, message });
  }

  /** Ends the stream. */
  async close({ reason }: Reason = {}): Promise<void> {
    await this.#session.call("stream/close", { stream_id: this.id, reason });
  }

  // -- changes, by the view -------------------------------------------------------------------------

  /** @internal */
  describe(described: JsonObject): void {
    this.#described = described;
    this.#writers = new Set(strings(described["authorized_writers"]));
    this.#status = described["status"] === "ready" ? "ready" : "live";
  }

  /** @internal */
  update(fields: JsonObject): void {
    this.describe({ ...this.#described, ...fields });
  }

  /** What `change` makes of the chains of delegation. @internal */
  delegationsBy(change: (known: readonly JsonObject[]) => JsonObject[]): JsonObject[] {
    return change(objects(this.#described["delegations"]));
  }

  /** A participant asks for the right to write; asked again, its place in the list stays. @internal */
  asked(participant: string, reason: string | undefined, ts: string): void {
    const requests = objects(this.#described["write_requests"]);
    const before = requests.find((each) => each["participant_id"] === participant);
    const request = { participant_id: participant, reason, ts: before?.["ts"] ?? ts };
    const others = before ? requests.map((each) => (each === before ? request : each)) : [...requests, request];
    this.update({ write_requests: others });
  }

  /** A participant does not ask any longer. @internal */
  answered(participant: string): void {
    const requests = objects(this.#described["write_requests"]);
    const others = requests.filter((each) => each["participant_id"] !== participant);
    if (others.length < requests.length) this.update({ write_requests: others });
  }

  /** @internal */
  ended(how: Ending): void {
    this.#status = how;
  }

  /** @internal */
  refused(refusal: RefusedError): void {
    this.#refusal = refusal;
  }

  /** The conditions with those of one participant replaced or, if there are none, removed. @internal */
  conditionsWith(participant: string, conditions?: JsonObject): JsonObject {
    const others = Object.entries(object(this.#described["conditions"])).filter(([writer]) => writer !== participant);
    return Object.fromEntries(conditions ? [...others, [participant, conditions]] : others);
  }
}

/** The options of a new stream as the fields of a request. */
export function fieldsOf(options: AnnounceOptions): JsonObject {
  return {
    description: options.description,
    content_type: options.contentType,
    direction: options.direction,
    target: options.target,
    auto_grant: options.autoGrant,
    desired_id: options.desiredId,
    formats: options.formats?.map(({ mimeType, schemaHash: _, ...format }) => ({ ...format, mime_type: mimeType })),
    validate: options.enforceFormats ? "enforce" : undefined,
    on_slow: options.onSlow,
    on_owner_leave: options.onOwnerLeave,
    owner_leave_grace: options.ownerLeaveGrace,
    metadata: options.metadata,
    intent: options.intent,
    scope: options.scope,
  };
}

function formatOf(described: JsonObject): Format {
  const { schema } = described;
  return {
    id: string(described["id"]) ?? "",
    schema: typeof schema === "boolean" || schema === undefined ? schema : object(schema),
    mimeType: string(described["mime_type"]),
    description: string(described["description"]),
    schemaHash: string(described["schema_hash"]),
  };
}

function bytes(head: string, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const encoded = encoder.encode(head);
  const message = new Uint8Array(encoded.length + data.length);
  message.set(encoded);
  message.set(data, encoded.length);
  return message;
}
