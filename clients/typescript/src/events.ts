import type { RefusedError } from "./errors.js";
import type { Resume } from "./link.js";
import type { Stream } from "./stream.js";
import type { Capability, JsonObject, Message } from "./wire.js";
import { integer, string } from "./wire.js";

/** Conditions of a right to write. */
export interface Conditions {
  /** When it ends, in the form of RFC 3339. */
  readonly expiresAt?: string;
  /** How many frames may be written in all. */
  readonly maxFrames?: number;
  /** How many of them were left when we last heard of it. */
  readonly framesLeft?: number;
}

/** How a stream ended; `lost`: while we were not connected, so that nobody told us. */
export type Ending = "closed" | "completed" | "failed" | "lost";

interface FromMessage {
  /** The message that it comes from. */
  readonly message: Message;
}

interface RightChanged extends FromMessage {
  /** The id of the stream. */
  readonly stream: string;
  readonly participant: string;
  /** Who changed it; the gateway itself is `system:gateway`. */
  readonly by?: string;
  readonly reason?: string;
}

interface ProposalEnded extends FromMessage {
  /** The id of the proposal. */
  readonly proposal: string;
  readonly by: string;
  readonly reason?: string;
}

/** An MCP request of another participant; see {@link Space.respond}. */
export interface Requested extends FromMessage {
  readonly type: "requested";
  readonly sender: string;
  readonly method: string;
  readonly params: unknown;
  /** Whom it is for; empty where that is everyone. */
  readonly to: readonly string[];
}

/** An MCP request that another participant proposes; see {@link Space.fulfil} and {@link Space.reject}. */
export interface Proposed extends FromMessage {
  readonly type: "proposed";
  /** The id of the proposal. */
  readonly proposal: string;
  readonly sender: string;
  readonly method: string;
  readonly params: unknown;
  /** Who is to carry it out; empty where the proposal does not say. */
  readonly to: readonly string[];
}

/** Something that happened in a space. Streams are named by id. */
export type SpaceEvent =
  /** A participant came. */
  | ({
      readonly type: "joined";
      readonly participant: string;
      readonly capabilities: readonly Capability[];
    } & FromMessage)
  /** A participant left. */
  | ({ readonly type: "left"; readonly participant: string } & FromMessage)
  /** Somebody new was invited, who may join from now on. */
  | ({ readonly type: "invited"; readonly participant: string; readonly by: string } & FromMessage)
  /** Our own capabilities are different now. */
  | ({ readonly type: "capabilitiesChanged"; readonly capabilities: readonly Capability[] } & FromMessage)
  /** A stream was opened: live, or announced and not yet started. */
  | ({ readonly type: "streamOpened"; readonly stream: Stream } & FromMessage)
  /** An announced stream is live. */
  | ({ readonly type: "streamStarted"; readonly stream: string } & FromMessage)
  /** A stream has ended. */
  | ({
      readonly type: "streamClosed";
      readonly stream: string;
      readonly how: Ending;
      readonly reason?: string;
      readonly by?: string;
    } & FromMessage)
  /** A participant may write to a stream. */
  | ({ readonly type: "writeGranted"; readonly conditions?: Conditions } & RightChanged)
  /** A participant may not write to a stream any more. */
  | ({ readonly type: "writeRevoked" } & RightChanged)
  /** A participant asks for the right to write; see {@link Stream.grant}, {@link Stream.handOver}, {@link Stream.denyWrite}. */
  | ({
      readonly type: "writeRequested";
      readonly stream: string;
      readonly participant: string;
      readonly reason?: string;
    } & FromMessage)
  /** A participant asked for the right to write, and does not get it. */
  | ({ readonly type: "writeDenied" } & RightChanged)
  /** A participant may read a stream. */
  | ({ readonly type: "readGranted" } & RightChanged)
  /** A participant may not read a stream any more. */
  | ({ readonly type: "readRevoked" } & RightChanged)
  /** A stream has a new owner. */
  | ({
      readonly type: "ownershipTransferred";
      readonly stream: string;
      readonly previousOwner: string;
      readonly newOwner: string;
      readonly by?: string;
      readonly reason?: string;
    } & FromMessage)
  /** Somebody sent a chat message. */
  | ({ readonly type: "chat"; readonly sender: string; readonly text: string } & FromMessage)
  | Requested
  | Proposed
  /** A participant took its proposal back. */
  | ({ readonly type: "proposalWithdrawn" } & ProposalEnded)
  /** A participant rejected a proposal. */
  | ({ readonly type: "proposalRejected" } & ProposalEnded)
  /** The gateway refused something that no call waits for, such as a frame. */
  | ({ readonly type: "refused"; readonly error: RefusedError } & FromMessage)
  /** Frames are missing: of one stream, or of all where `stream` is undefined. `count` is undefined if unknown. */
  | {
      readonly type: "gap";
      readonly stream?: string;
      readonly count?: number;
      readonly reason: string;
      readonly message: Message;
    }
  /** The connection was lost, and is being made again. */
  | { readonly type: "disconnected"; readonly reason: string }
  /** We are connected again. Where it is `recovered`, everything that was missed follows in order. */
  | ({ readonly type: "resumed" } & Resume)
  /** Any other envelope came. */
  | ({ readonly type: "message" } & FromMessage);

/** What the listeners of {@link Space.on} get: by type of event, and `*` for every event. */
export type SpaceEvents = { [Event in SpaceEvent as Event["type"]]: Event } & { "*": SpaceEvent };

/** The conditions in a message; undefined where there are none. */
export function conditionsOf(described: JsonObject): Conditions | undefined {
  const conditions = {
    expiresAt: string(described["expires_at"]),
    maxFrames: integer(described["max_frames"]),
    framesLeft: integer(described["frames_left"]),
  };
  return Object.values(conditions).some((each) => each !== undefined) ? conditions : undefined;
}
