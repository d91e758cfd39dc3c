/**
 * What the page knows of a space: a fold over the events of the client. Nothing here knows the page, or changes
 * anything but this. Everything is bounded, however long the page is open.
 */

import type { Capability, Frame, Message, SpaceEvent } from "mewstream";

import { Inbox } from "./inbox.js";
import type { Mark } from "./marks.js";
import { Outages } from "./outages.js";
import { People } from "./people.js";
import { Ring } from "./ring.js";
import type { Described } from "./tracks.js";
import { Tracks } from "./tracks.js";

/** How many marks are kept. */
const MOST_MARKS = 5000;
const GATEWAY = "system:gateway";

/** What one can ask the client for: the state after the event. */
export interface Known {
  /** The streams that are open. */
  readonly streams: ReadonlyMap<string, Described>;
  readonly participants: ReadonlyMap<string, { readonly capabilities: readonly Capability[] }>;
}

/** A refusal of another participant's message, as the gateway lists it. */
export interface Refusal {
  readonly seq: number;
  readonly at: number;
  readonly participant: string;
  readonly kind: string;
  readonly error: string;
  readonly message: string;
  readonly stream?: string;
  readonly count: number;
}

export class Model {
  readonly people = new People();
  readonly tracks = new Tracks();
  readonly inbox = new Inbox();
  readonly outages = new Outages();
  /** When the page began to watch. */
  readonly begun: number;
  readonly #marks = new Ring<Mark>(MOST_MARKS);
  readonly #refusals = new Ring<Refusal>(200);
  readonly #known: Known;
  #numbered = 0;

  constructor(me: string, capabilities: readonly Capability[], known: Known, at: number) {
    this.#known = known;
    this.begun = at;
    this.people.become(me, "here", undefined, capabilities);
    for (const [id, participant] of known.participants) {
      this.people.become(id, "here", undefined, participant.capabilities);
    }
    for (const stream of known.streams.values()) {
      this.tracks.opened(stream, at, Math.min(at, timeOf(stream.created, at)));
    }
  }

  /** Oldest first. */
  get marks(): Mark[] {
    return this.#marks.last();
  }

  get newestMark(): number {
    return this.#numbered;
  }

  get refusals(): Refusal[] {
    return this.#refusals.last();
  }

  title(stream: string): string {
    return this.tracks.get(stream)?.title ?? stream;
  }

  mark(mark: Omit<Mark, "number">): void {
    this.#marks.push({ ...mark, number: ++this.#numbered });
  }

  frame(frame: Pick<Frame, "stream" | "writer" | "gap" | "seq">, bytes: number, at: number): void {
    this.outages.came("frames", frame.seq);
    const track = this.tracks.get(frame.stream);
    if (!track) return;
    track.missed += frame.gap;
    track.frame(frame.writer, bytes, at);
  }

  refused(refusal: Refusal): void {
    this.#refusals.push(refusal);
    this.people.refused(refusal.participant, refusal.count);
    const { at, participant: who, stream, count, seq } = refusal;
    this.mark({ at, kind: "refused", who, stream, count, seq, text: `${refusal.error}: ${refusal.message}` });
  }

  /** Takes over an event that happened at a time, in milliseconds since 1970. */
  apply(event: SpaceEvent, at: number): void {
    if ("message" in event) this.outages.came("events", event.message.seq);
    switch (event.type) {
      case "joined":
        this.people.become(event.participant, "here", at, event.capabilities);
        return this.mark({ at, kind: "joined", who: event.participant });
      case "left":
        this.people.become(event.participant, "gone", at);
        return this.mark({ at, kind: "left", who: event.participant });
      case "invited":
        this.people.become(event.participant, "invited", at);
        return this.mark({ at, kind: "invited", who: event.participant, by: event.by });
      case "streamOpened":
        this.tracks.opened(event.stream, at);
        return this.mark({ at, kind: "opened", stream: event.stream.id, who: event.stream.owner });
      case "streamStarted":
        this.#described(event.stream);
        return this.mark({ at, kind: "started", stream: event.stream });
      case "streamClosed": {
        const { stream, how, by, reason } = event;
        this.tracks.get(stream)?.end({ at, how, by, reason: reason ?? (how === "closed" ? undefined : how) });
        return this.mark({ at, kind: "closed", stream, by, reason: reason ?? (how === "closed" ? undefined : how) });
      }
      case "writeGranted":
      case "writeRevoked":
        this.#writers(event.stream, event.message, at);
        return this.#right(event.type === "writeGranted" ? "granted" : "revoked", event, at);
      case "writeRequested": {
        const { stream, participant: who, reason } = event;
        this.#described(stream);
        return this.mark({ at, kind: "asked", stream, who, reason, seq: event.message.seq });
      }
      case "writeDenied":
        this.#described(event.stream);
        return this.#right("denied", event, at);
      case "readGranted":
      case "readRevoked":
        this.#described(event.stream);
        return this.#right(event.type, event, at);
      case "ownershipTransferred":
        this.#writers(event.stream, event.message, at);
        this.tracks.get(event.stream)?.ownerIs(event.newOwner, at);
        return this.#right("transferred", { ...event, participant: event.newOwner }, at);
      case "chat":
        this.inbox.say({ at, sender: event.sender, text: event.text, to: event.message.to, id: event.message.id });
        return this.mark({ at, kind: "chat", who: event.sender, text: event.text.slice(0, 200) });
      case "proposed":
        this.inbox.propose(event, at);
        return this.mark({ at, kind: "proposed", who: event.sender, text: callText(event.method, event.params) });
      case "requested":
        return event.message.correlationId.forEach((id) => this.#settled(id, "fulfilled", event.sender, undefined, at));
      case "proposalRejected":
        return this.#settled(event.proposal, "rejected", event.by, event.reason, at);
      case "proposalWithdrawn":
        return this.#settled(event.proposal, "withdrawn", event.by, event.reason, at);
      case "gap":
        if (event.stream === undefined) return;
        return this.mark({ at, kind: "gap", stream: event.stream, count: event.count, reason: event.reason });
      case "disconnected":
        this.outages.began(at, event.reason);
        return this.mark({ at, kind: "disconnected", reason: event.reason });
      case "resumed":
        if (!event.recovered) this.#reconcile(at);
        this.outages.ended(at, event);
        return this.mark({ at, kind: "resumed", text: event.recovered ? "" : (event.reason ?? "") });
      case "message":
        return this.#message(event.message, at);
    }
  }

  #message(message: Message, at: number): void {
    const { kind, from: by, to, payload } = message;
    if (kind === "system/presence" && by === GATEWAY) {
      const id = String((payload["participant"] as { id?: unknown } | undefined)?.id ?? "");
      if (payload["event"] === "suspended") {
        this.people.become(id, "suspended", at);
        this.mark({ at, kind: "suspended", who: id });
      } else if (payload["event"] === "resumed") {
        this.people.become(id, "here", at);
        this.mark({ at, kind: "joined", who: id });
      }
    } else if (kind === "participant/pause" || kind === "participant/resume") {
      for (const who of to) {
        this.people.pause(who, kind === "participant/pause");
        const reason = typeof payload["reason"] === "string" ? payload["reason"] : undefined;
        this.mark({ at, kind: kind === "participant/pause" ? "paused" : "continued", who, by, reason });
      }
    } else if (kind === "space/kick" && typeof payload["participant_id"] === "string") {
      this.mark({ at, kind: "kicked", who: payload["participant_id"], by });
    }
  }

  /** The state of an open stream after an event. */
  #described(id: string): void {
    const track = this.tracks.get(id);
    const described = this.#known.streams.get(id);
    if (track && described) track.described = described;
  }

  /** The message says who may write since then; what was replayed may be over by now. */
  #writers(id: string, message: Message, at: number): void {
    this.#described(id);
    const writers = message.payload["authorized_writers"];
    if (Array.isArray(writers)) this.tracks.get(id)?.writersAre(writers.map(String), at);
  }

  #right(
    kind: "granted" | "revoked" | "denied" | "readGranted" | "readRevoked" | "transferred",
    event: { stream: string; participant: string; by?: string; reason?: string; message: Message },
    at: number,
  ): void {
    const { stream, participant: who, by, reason, message } = event;
    this.mark({ at, kind, stream, who, by, reason, seq: message.seq });
  }

  #settled(
    id: string,
    state: "fulfilled" | "rejected" | "withdrawn",
    by: string,
    reason: string | undefined,
    at: number,
  ): void {
    const entry = this.inbox.settle(id, state, by, reason);
    if (entry) this.mark({ at, kind: state, by, who: entry.proposed.sender, reason });
  }

  /** What changed while nobody told us. Streams that are new or gone come as events. */
  #reconcile(at: number): void {
    for (const stream of this.#known.streams.values()) this.tracks.opened(stream, at);
  }
}

/** A time in the form of RFC 3339 as milliseconds since 1970. */
export function timeOf(text: string | undefined, otherwise: number): number {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? otherwise : at;
}

/** What a request asks for, in a few words. */
export function callText(method: string, params: unknown): string {
  const { name, arguments: given } = (params ?? {}) as { name?: unknown; arguments?: unknown };
  if (method !== "tools/call" || typeof name !== "string") return method;
  const values = given === undefined ? "" : (JSON.stringify(given) ?? "");
  return `${name}(${values.length > 120 ? `${values.slice(0, 120)}…` : values})`;
}
