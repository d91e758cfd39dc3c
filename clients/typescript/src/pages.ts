import type { SpaceEvent } from "./events.js";
import type { View } from "./view.js";
import type { JsonObject, Message } from "./wire.js";
import { objects, string } from "./wire.js";

/**
 * The rest of a welcome that was too long for one message, requested page by page. A page is the state at its own place
 * among the messages: it contains what was sent before it, and not what is sent after it.
 */
export class Pages {
  readonly #view: View;
  readonly #post: (kind: string, payload: JsonObject) => string;
  /** For each kind of page the id of the request for it. A page for an older request is of an older welcome. */
  readonly #requests = new Map<string, string>();
  #areTold = false;
  #waiting: (() => void)[] = [];

  /** `post` sends a message and returns its id. */
  constructor(view: View, post: (kind: string, payload: JsonObject) => string) {
    this.#view = view;
    this.#post = post;
  }

  /** Resolves when everything that a welcome promised is known, or no more pages will come. */
  complete(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#requests.size) this.#waiting.push(resolve);
      else resolve();
    });
  }

  /** Requests what this welcome leaves out. `areTold`: what pages bring is news. */
  welcomed(welcome: Message, areTold: boolean): void {
    this.#requests.clear();
    this.#areTold = areTold;
    if (this.#view.lacksStreams) {
      const last = objects(welcome.payload["active_streams"]).at(-1);
      this.#request("stream", string(last?.["stream_id"]));
    }
    if (this.#view.lacksParticipants) this.#request("participant");
    this.#wake();
  }

  /** Takes over a page and requests the next. Returns what must have happened before the welcome. */
  received(page: Message): SpaceEvent[] {
    const what = page.kind === "stream/listed" ? "stream" : "participant";
    if (!page.correlationId.includes(this.#requests.get(what) ?? "")) return [];
    const after = string(page.payload["next"]);
    const found = this.#view.listed(page, after === undefined);
    if (after !== undefined) this.#request(what, after);
    else this.#requests.delete(what);
    this.#wake();
    return this.#areTold ? found : [];
  }

  /** No more pages will come. */
  end(): void {
    this.#requests.clear();
    this.#wake();
  }

  #request(what: "stream" | "participant", after?: string): void {
    this.#requests.set(what, this.#post(`${what}/list`, { after }));
  }

  #wake(): void {
    if (this.#requests.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
