/** The streams that this page knows, with who could write when, and who wrote. */

import type { Conditions, Delegation, Ending, Format, WriteRequest } from "mewstream";

import { Density } from "./density.js";
import { Spans } from "./spans.js";

/** What a track takes over from a stream: the properties of the client's `Stream`. */
export interface Described {
  readonly id: string;
  readonly alias?: string;
  readonly description?: string;
  readonly owner: string;
  readonly ownerConnected: boolean;
  readonly writers: readonly string[];
  readonly readers?: readonly string[];
  readonly status: "ready" | "live" | Ending;
  readonly created?: string;
  readonly contentType?: string;
  readonly formats: readonly Format[];
  readonly conditions: ReadonlyMap<string, Conditions>;
  readonly delegations: readonly Delegation[];
  readonly writeRequests: readonly WriteRequest[];
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** One participant on one stream. */
export class Lane {
  /** When it had the right to write. */
  readonly rights = new Spans();
  /** When it was the owner. */
  readonly owned = new Spans();
  #density: Density | undefined;

  constructor(readonly participant: string) {}

  /** Its frames; undefined before the first. */
  get density(): Density | undefined {
    return this.#density;
  }

  wrote(at: number): void {
    this.#density ??= new Density();
    this.#density.add(at);
  }
}

export interface Ended {
  readonly at: number;
  readonly how: Ending;
  readonly by?: string;
  readonly reason?: string;
}

/** How many participants of a stream have a lane. */
const MOST_LANES = 256;
/** How many streams that have ended are kept. */
const MOST_ENDED = 200;

export class Track {
  readonly lanes = new Map<string, Lane>();
  /** All of its frames. */
  readonly density = new Density();
  bytes = 0;
  /** How many frames we missed. */
  missed = 0;
  ended: Ended | undefined;

  constructor(
    public described: Described,
    readonly openedAt: number,
  ) {}

  get id(): string {
    return this.described.id;
  }

  /** What people call it. */
  get title(): string {
    return this.described.alias ?? this.described.description ?? this.described.id;
  }

  get isOpen(): boolean {
    return this.ended === undefined;
  }

  lane(participant: string): Lane | undefined {
    let lane = this.lanes.get(participant);
    if (!lane && this.lanes.size < MOST_LANES) {
      lane = new Lane(participant);
      this.lanes.set(participant, lane);
    }
    return lane;
  }

  frame(writer: string, bytes: number, at: number): void {
    this.density.add(at);
    this.bytes += bytes;
    this.lane(writer)?.wrote(at);
  }

  /** These participants, and nobody else, may write from now on. */
  writersAre(writers: readonly string[], at: number): void {
    const now = new Set(writers);
    for (const [participant, lane] of this.lanes) if (!now.has(participant)) lane.rights.set(false, at);
    for (const participant of now) this.lane(participant)?.rights.set(true, at);
  }

  ownerIs(owner: string, at: number): void {
    for (const [participant, lane] of this.lanes) if (participant !== owner) lane.owned.set(false, at);
    this.lane(owner)?.owned.set(true, at);
  }

  end(ended: Ended): void {
    this.ended ??= ended;
    for (const lane of this.lanes.values()) {
      lane.rights.set(false, ended.at);
      lane.owned.set(false, ended.at);
    }
  }
}

export class Tracks {
  readonly #tracks = new Map<string, Track>();

  get(id: string): Track | undefined {
    return this.#tracks.get(id);
  }

  /** In the order in which the streams were opened. */
  get all(): Track[] {
    return [...this.#tracks.values()];
  }

  get open(): Track[] {
    return this.all.filter((track) => track.isOpen);
  }

  /** The track of a stream that is open. What is known of rights, is known since `at`. */
  opened(described: Described, at: number, openedAt = at): Track {
    let track = this.#tracks.get(described.id);
    if (!track || track.ended) {
      track = new Track(described, openedAt);
      this.#tracks.set(described.id, track);
      this.#forget();
    }
    track.described = described;
    track.writersAre(described.writers, at);
    track.ownerIs(described.owner, at);
    return track;
  }

  #forget(): void {
    const ended = this.all.filter((track) => track.ended);
    for (const track of ended.slice(0, -MOST_ENDED)) this.#tracks.delete(track.id);
  }
}
