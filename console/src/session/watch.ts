/** A space that this page has joined: feeds what comes from the client into the model, and tells the views. */

import type { Frame, SpaceEvent, Space } from "mewstream";

import { Clock } from "../state/clock.js";
import { Colours } from "../state/colours.js";
import { sizeOf } from "../state/decode.js";
import { Model } from "../state/model.js";
import { holds } from "../state/permits.js";
import { Tail } from "../state/tail.js";
import { Api } from "./api.js";
import { Pulse } from "./pulse.js";

/** How many frames may wait until this page has time for them. */
const MOST_PENDING = 20_000;
const REFUSALS_MS = 2000;

export class Watch {
  readonly model: Model;
  readonly colours = new Colours();
  /** For what is drawn on a canvas. */
  readonly drawing = new Pulse(30);
  /** For all the rest, which takes more time. */
  readonly page = new Pulse(8);
  tail: Tail | undefined;
  readonly #clock = new Clock();
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  readonly #api: Api;
  #refusalSeq = 0;

  constructor(
    readonly space: Space,
    token: string,
    /** The id of the space. */
    readonly spaceId: string,
    readonly spaceName: string,
  ) {
    this.#api = new Api(token, spaceId);
    const now = Date.now();
    this.model = new Model(space.participant, space.capabilities, space, now);
    space.on("*", (event) => this.#event(event));
    void this.#read();
    this.#timers.push(setInterval(this.page.touch, 1000));
    void this.#list();
    if (this.observes) {
      void this.#askRefusals();
      this.#timers.push(setInterval(() => void this.#askRefusals(), REFUSALS_MS));
    }
  }

  get api(): Api {
    return this.#api;
  }

  get me(): string {
    return this.space.participant;
  }

  /** Whether we may look at the figures of the whole gateway. */
  get observes(): boolean {
    return holds(this.space.capabilities, "gateway/observe");
  }

  /** Keeps the newest frames of a stream from now on, and of no other. */
  follow(stream: string | undefined): void {
    if (this.tail?.stream === stream) return;
    this.tail = stream === undefined ? undefined : new Tail(stream);
    this.page.touch();
  }

  /** Leaves the space. */
  async leave(): Promise<void> {
    this.stop();
    await this.space.close();
  }

  stop(): void {
    this.#timers.splice(0).forEach(clearInterval);
  }

  #event(event: SpaceEvent): void {
    const now = Date.now();
    this.model.apply(event, "message" in event ? this.#clock.at(event.message.ts, now) : now);
    if (event.type === "refused" && !this.observes) {
      const { code, message, details } = event.error;
      const stream = typeof details["stream_id"] === "string" ? details["stream_id"] : undefined;
      this.model.refused({ seq: 0, at: now, participant: this.me, kind: "", error: code, message, stream, count: 1 });
    }
    this.drawing.touch();
    this.page.touch();
  }

  async #read(): Promise<void> {
    const frames = this.space.subscribe(undefined, { maxPending: MOST_PENDING });
    try {
      for await (const frame of frames) this.#frame(frame);
    } catch {
      // The space has ended, which `closed` tells.
    }
  }

  #frame(frame: Frame): void {
    const now = Date.now();
    this.model.frame(frame, sizeOf(frame), now);
    this.tail?.add(frame, now);
    this.drawing.touch();
  }

  /** Those who could join and are not here. */
  async #list(): Promise<void> {
    const listed = await this.#api.participants().catch(() => []);
    for (const { id, connected, capabilities } of listed) this.model.people.listed(id, connected, capabilities);
    this.page.touch();
  }

  async #askRefusals(): Promise<void> {
    const found = await this.#api.refusals(this.#refusalSeq).catch(() => []);
    for (const { seq, ts, participant, kind, error, message, stream_id: stream, count } of found) {
      this.#refusalSeq = Math.max(this.#refusalSeq, seq);
      const at = this.#clock.at(ts, Date.now());
      this.model.refused({ seq, at, participant, kind, error, message, stream, count });
    }
    if (found.length) {
      this.drawing.touch();
      this.page.touch();
    }
  }
}
