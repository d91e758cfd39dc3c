import { delegationsAfterRight, delegationsAfterTransfer } from "./delegations.js";
import { refusal } from "./refusals.js";
import type { Ending, SpaceEvent } from "./events.js";
import { conditionsOf } from "./events.js";
import { LiveMap } from "./live-map.js";
import type { Stream } from "./stream.js";
import type { Capability, JsonObject, Message } from "./wire.js";
import { capabilities, GATEWAY, integer, object, objects, streamOf, string } from "./wire.js";

/** Somebody who is in the space. */
export interface Participant {
  readonly id: string;
  /** Those at the time of joining. */
  readonly capabilities: readonly Capability[];
}

const ENDINGS: ReadonlyMap<string, Ending> = new Map([
  ["stream/close", "closed"],
  ["stream/complete", "completed"],
  ["stream/error", "failed"],
]);

/** Kinds that count from any sender: the gateway relays them only from those who may send them. */
const FROM_ANYONE: ReadonlySet<string> = new Set([
  ...["stream/start", "stream/request-write", ...ENDINGS.keys(), "chat"],
  ...["mcp/request", "mcp/proposal", "mcp/withdraw", "mcp/reject"],
]);

/** What we know of the space: the state in the welcome, and every change since then. */
export class View {
  me: string;
  capabilities: Capability[] = [];
  readonly participants = new LiveMap<Participant>();
  readonly streams = new LiveMap<Stream>();
  /** Whether the welcome had no room for everything, so that pages of it are still to come. */
  lacksStreams = false;
  lacksParticipants = false;
  readonly #makeStream: (described: JsonObject) => Stream;
  /** The position of the newest welcome: messages up to there are replayed, and change no state. */
  #seq = 0;
  /** Streams that are not open any more and that the replay after a resume may still mention. */
  readonly #replayed = new Map<string, Stream>();
  /** What was there before the welcome and that no page has listed yet. */
  #unlistedStreams = new Set<string>();
  #unlistedParticipants = new Set<string>();

  constructor(me: string, makeStream: (described: JsonObject) => Stream) {
    this.me = me;
    this.#makeStream = makeStream;
  }

  // -- the welcome and its pages --------------------------------------------------------------------

  /**
   * Takes over the state in a welcome. Returns what must have happened since the state before it; nothing where a
   * replay is due, for then the messages themselves follow.
   */
  welcome(message: Message, isReplayDue: boolean): SpaceEvent[] {
    const { payload } = message;
    const you = object(payload["you"]);
    this.me = string(you["id"]) || this.me;
    this.capabilities = capabilities(you["capabilities"]);
    this.#seq = integer(payload["seq"]) ?? message.seq ?? 0;
    this.lacksParticipants = integer(payload["participants_total"]) !== undefined;
    this.lacksStreams = integer(payload["active_streams_total"]) !== undefined;
    this.#replayed.clear();

    const people = objects(payload["participants"]);
    this.#unlistedParticipants = missingFrom(people, "id", this.participants);
    const streams = objects(payload["active_streams"]);
    this.#unlistedStreams = missingFrom(streams, "stream_id", this.streams);
    if (isReplayDue && !this.lacksStreams) {
      for (const id of this.#unlistedStreams) this.#replayed.set(id, this.streams.get(id) as Stream);
    }
    const found = [
      ...(this.lacksParticipants ? [] : this.#removeUnlistedParticipants(message)),
      ...this.#addParticipants(people, message),
      ...(this.lacksStreams ? [] : this.#endUnlistedStreams(message)),
      ...this.#addStreams(streams, message),
    ];
    return isReplayDue ? [] : found;
  }

  /** Takes over a page of what the welcome had no room for. Returns what must have happened meanwhile. */
  listed(page: Message, isLast: boolean): SpaceEvent[] {
    if (page.kind === "participant/listed") {
      const found = this.#addParticipants(objects(page.payload["participants"]), page);
      if (!isLast) return found;
      this.lacksParticipants = false;
      return [...found, ...this.#removeUnlistedParticipants(page)];
    }
    const found = this.#addStreams(objects(page.payload["streams"]), page);
    if (!isLast) return found;
    this.lacksStreams = false;
    return [...found, ...this.#endUnlistedStreams(page)];
  }

  #addParticipants(described: JsonObject[], message: Message): SpaceEvent[] {
    return described.flatMap((each): SpaceEvent[] => {
      const id = string(each["id"]);
      if (!id) return [];
      const participant = { id, capabilities: capabilities(each["capabilities"]) };
      const isNew = !this.participants.has(id);
      this.#unlistedParticipants.delete(id);
      this.participants.set(id, participant);
      return isNew ? [{ type: "joined", participant: id, capabilities: participant.capabilities, message }] : [];
    });
  }

  #removeUnlistedParticipants(message: Message): SpaceEvent[] {
    const gone = [...this.#unlistedParticipants];
    this.#unlistedParticipants.clear();
    return gone.flatMap((participant): SpaceEvent[] =>
      this.participants.delete(participant) ? [{ type: "left", participant, message }] : [],
    );
  }

  #addStreams(described: JsonObject[], message: Message): SpaceEvent[] {
    return described.flatMap((each): SpaceEvent[] => {
      const id = string(each["stream_id"]);
      if (!id) return [];
      const isNew = !this.streams.has(id);
      const stream = this.#stream(id, each);
      return isNew ? [{ type: "streamOpened", stream, message }] : [];
    });
  }

  #endUnlistedStreams(message: Message): SpaceEvent[] {
    const gone = [...this.#unlistedStreams];
    this.#unlistedStreams.clear();
    return gone.map((stream) => this.#end(stream, { type: "streamClosed", stream, how: "lost", message }));
  }

  /** The stream of a description: the same object for as long as the stream is open. */
  #stream(id: string, described: JsonObject): Stream {
    this.#unlistedStreams.delete(id);
    let stream = this.streams.get(id) ?? this.#replayed.get(id);
    if (stream?.isOpen) stream.describe(described);
    else stream = this.#makeStream(described);
    this.streams.set(id, stream, stream.alias);
    return stream;
  }

  // -- messages -------------------------------------------------------------------------------------

  /**
   * Follows a message. Returns its event; undefined where it is malformed. What is replayed after a welcome changes
   * nothing, for its outcome is in the welcome.
   */
  apply(message: Message): SpaceEvent | undefined {
    const isReplay = message.seq !== undefined && message.seq <= this.#seq;
    if (!isReplay && !this.lacksStreams) this.#replayed.clear();
    if (message.from !== GATEWAY && !FROM_ANYONE.has(message.kind)) return { type: "message", message };
    const { payload } = message;
    switch (message.kind) {
      case "system/presence":
        return this.#presence(message, isReplay);
      case "stream/open":
        return this.#opened(payload, message, isReplay);
      case "stream/ready":
        return this.#opened(object(payload["stream"]), message, isReplay);
      case "stream/start":
        if (!isReplay) this.#update(streamOf(payload), { status: "live" });
        return { type: "streamStarted", stream: streamOf(payload), message };
      case "stream/close":
      case "stream/complete":
      case "stream/error":
        return this.#closed(message, isReplay);
      case "stream/request-write":
        return this.#asked(message, isReplay);
      case "stream/write-granted":
      case "stream/write-revoked":
      case "stream/write-denied":
      case "stream/read-granted":
      case "stream/read-revoked":
        return this.#right(message, isReplay);
      case "stream/ownership-transferred":
        return this.#transferred(message, isReplay);
      case "system/error":
        return { type: "refused", error: refusal(payload), message };
      case "system/notice":
        if (payload["notice"] !== "frames_dropped") return { type: "message", message };
        return {
          type: "gap",
          stream: streamOf(payload),
          count: integer(payload["count"]),
          reason: "the gateway dropped them: this reader was too slow",
          message,
        };
      case "chat":
        return { type: "chat", sender: message.from, text: string(payload["text"]) ?? "", message };
      case "mcp/request":
        return { type: "requested", ...request(message) };
      case "mcp/proposal":
        return { type: "proposed", proposal: message.id, ...request(message) };
      case "mcp/withdraw":
        return { type: "proposalWithdrawn", ...proposalEnded(message) };
      case "mcp/reject":
        return { type: "proposalRejected", ...proposalEnded(message) };
      default:
        return { type: "message", message };
    }
  }

  #presence(message: Message, isReplay: boolean): SpaceEvent | undefined {
    const described = object(message.payload["participant"]);
    const id = string(described["id"]);
    if (!id) return undefined;
    const held = capabilities(described["capabilities"]);
    switch (message.payload["event"]) {
      case "join":
        if (!isReplay && id !== this.me) {
          this.participants.set(id, { id, capabilities: held });
          this.#ownerConnected(id, true);
        }
        return { type: "joined", participant: id, capabilities: held, message };
      case "leave":
        if (!isReplay) {
          this.participants.delete(id);
          this.#ownerConnected(id, false);
          for (const stream of this.streams.values()) stream.answered(id);
        }
        return { type: "left", participant: id, message };
      case "invited":
        return { type: "invited", participant: id, by: string(message.payload["by"]) ?? "", message };
      default:
        return { type: "message", message };
    }
  }

  #ownerConnected(owner: string, isConnected: boolean): void {
    for (const stream of this.streams.values()) {
      if (stream.owner === owner) this.#update(stream.id, { owner_connected: isConnected });
    }
  }

  #opened(described: JsonObject, message: Message, isReplay: boolean): SpaceEvent | undefined {
    const id = string(described["stream_id"]);
    if (!id) return undefined;
    let stream: Stream;
    if (isReplay) {
      stream = this.streams.get(id) ?? this.#replayed.get(id) ?? this.#makeStream(described);
      this.#replayed.set(id, stream);
    } else stream = this.#stream(id, described);
    for (const opener of [message.id, ...message.correlationId]) stream.openedBy.add(opener);
    return { type: "streamOpened", stream, message };
  }

  #closed(message: Message, isReplay: boolean): SpaceEvent {
    const { payload } = message;
    const stream = streamOf(payload) || this.#correlated(message);
    const how = ENDINGS.get(message.kind) as Ending;
    const reason = string(payload["reason"]) ?? string(payload["message"]);
    const closed = { type: "streamClosed", stream, how, reason, by: message.from, message } as const;
    if (!isReplay || this.#unlistedStreams.has(stream)) return this.#end(stream, closed);
    if (!this.streams.has(stream)) this.#replayed.get(stream)?.ended(how);
    this.#replayed.delete(stream);
    return closed;
  }

  #end(id: string, closed: SpaceEvent & { type: "streamClosed" }): SpaceEvent {
    this.#unlistedStreams.delete(id);
    this.streams.get(id)?.ended(closed.how);
    this.streams.delete(id);
    return closed;
  }

  /** The stream of a close that names the request which opened it, or the answer to that; else empty. */
  #correlated(message: Message): string {
    for (const stream of [...this.streams.values(), ...this.#replayed.values()]) {
      if (message.correlationId.some((id) => stream.openedBy.has(id))) return stream.id;
    }
    return "";
  }

  #right(message: Message, isReplay: boolean): SpaceEvent {
    const { kind, payload } = message;
    const id = streamOf(payload);
    const participant = string(payload["participant_id"]) ?? "";
    const given = conditionsOf(object(payload["conditions"]));
    const stream = this.streams.get(id);
    if (stream && !isReplay) {
      const { authorized_writers: writers, authorized_readers: readers } = payload;
      const isGrant = kind === "stream/write-granted";
      this.#update(id, {
        ...(writers !== undefined && { authorized_writers: writers }),
        ...(readers !== undefined && { authorized_readers: readers }),
        ...((isGrant || kind === "stream/write-revoked") && {
          conditions: stream.conditionsWith(participant, isGrant && given ? object(payload["conditions"]) : undefined),
          delegations: stream.delegationsBy((known) => delegationsAfterRight(known, participant, payload)),
        }),
      });
      if (isGrant || kind === "stream/write-denied") stream.answered(participant);
    }
    const changed = { stream: id, participant, by: string(payload["by"]), reason: string(payload["reason"]), message };
    switch (kind) {
      case "stream/write-granted":
        return { type: "writeGranted", ...changed, conditions: given };
      case "stream/write-revoked":
        return { type: "writeRevoked", ...changed };
      case "stream/write-denied":
        return { type: "writeDenied", ...changed };
      case "stream/read-granted":
        return { type: "readGranted", ...changed };
      default:
        return { type: "readRevoked", ...changed };
    }
  }

  #asked(message: Message, isReplay: boolean): SpaceEvent {
    const id = streamOf(message.payload);
    const reason = string(message.payload["reason"]);
    const stream = this.streams.get(id);
    if (stream && !isReplay) {
      stream.asked(message.from, reason, message.ts);
      this.streams.changed(id);
    }
    return { type: "writeRequested", stream: id, participant: message.from, reason, message };
  }

  #transferred(message: Message, isReplay: boolean): SpaceEvent {
    const { payload } = message;
    const id = streamOf(payload);
    const newOwner = string(payload["new_owner"]) ?? "";
    const stream = this.streams.get(id);
    if (stream && !isReplay) {
      const { authorized_writers: writers } = payload;
      this.#update(id, {
        owner: newOwner,
        owner_connected: true,
        conditions: stream.conditionsWith(newOwner),
        delegations: stream.delegationsBy((known) => delegationsAfterTransfer(known, newOwner)),
        ...(writers !== undefined && { authorized_writers: writers }),
      });
      stream.answered(newOwner);
    }
    return {
      type: "ownershipTransferred",
      stream: id,
      previousOwner: string(payload["previous_owner"]) ?? "",
      newOwner,
      by: string(payload["by"]),
      reason: string(payload["reason"]),
      message,
    };
  }

  #update(id: string, fields: JsonObject): void {
    this.streams.get(id)?.update(fields);
    this.streams.changed(id);
  }
}

/** The ids of `known` that a list does not have. */
function missingFrom(listed: JsonObject[], key: string, known: ReadonlyMap<string, unknown>): Set<string> {
  const missing = new Set(known.keys());
  for (const each of listed) missing.delete(string(each[key]) ?? "");
  return missing;
}

function request(message: Message): {
  sender: string;
  method: string;
  params: unknown;
  to: readonly string[];
  message: Message;
} {
  const { payload } = message;
  return {
    sender: message.from,
    method: string(payload["method"]) ?? "",
    params: payload["params"],
    to: message.to,
    message,
  };
}

function proposalEnded(message: Message): {
  proposal: string;
  by: string;
  reason: string | undefined;
  message: Message;
} {
  return {
    proposal: message.correlationId[0] ?? "",
    by: message.from,
    reason: string(message.payload["reason"]),
    message,
  };
}
