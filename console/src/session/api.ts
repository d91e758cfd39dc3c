/** The HTTP API of the gateway that this page comes from, as far as the console asks it. */

export interface SpaceEntry {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** Whose token it is there. */
  readonly participant: string;
}

export interface Listed {
  readonly id: string;
  readonly connected: boolean;
  readonly capabilities: readonly { readonly kind: string; readonly payload?: unknown }[];
}

export interface ListedRefusal {
  readonly seq: number;
  readonly ts: string;
  readonly participant: string;
  readonly kind: string;
  readonly error: string;
  readonly message: string;
  readonly stream_id?: string;
  readonly count: number;
}

export interface SpaceFigures {
  readonly id: string;
  readonly name: string;
  readonly seq: number;
  readonly participants: number;
  readonly connected: number;
  readonly streams: number;
  readonly frames: number;
  readonly frame_bytes: number;
  readonly deliveries: number;
  readonly frames_dropped: number;
  readonly refusals: number;
}

export interface Figures {
  readonly version: string;
  readonly status: string;
  readonly started: string;
  readonly uptime: number;
  readonly process: { readonly cpu_seconds: number; readonly memory_bytes?: number };
  readonly connections: {
    readonly websocket: number;
    readonly http: number;
    readonly unsent_bytes: number;
    readonly unsent_http_bytes: number;
    readonly refused: Readonly<Record<string, number>>;
    readonly closed: Readonly<Record<string, number>>;
  };
  readonly journal: {
    readonly status: string;
    readonly durability?: string;
    readonly bytes?: number;
    readonly free_bytes?: number;
  };
  readonly spaces: readonly SpaceFigures[];
  readonly slow_readers: readonly {
    readonly space: string;
    readonly participant: string;
    readonly unsent_bytes: number;
    readonly frames_dropped: number;
  }[];
}

/** The gateway's answer was no. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
  ) {
    super(message);
  }
}

/** Asks with a token, which goes into a header and nowhere else. */
export class Api {
  readonly #token: string;
  readonly #space: string | undefined;

  constructor(token: string, space?: string) {
    this.#token = token;
    this.#space = space;
  }

  async spaces(): Promise<readonly SpaceEntry[]> {
    return ((await this.#get("/spaces")) as { spaces: SpaceEntry[] }).spaces;
  }

  async participants(): Promise<readonly Listed[]> {
    return ((await this.#get("/participants")) as { participants: Listed[] }).participants;
  }

  figures(): Promise<Figures> {
    return this.#get("/gateway") as Promise<Figures>;
  }

  async refusals(after: number): Promise<readonly ListedRefusal[]> {
    return ((await this.#get("/refusals", { after: String(after) })) as { refusals: ListedRefusal[] }).refusals;
  }

  async #get(path: string, query: Readonly<Record<string, string>> = {}): Promise<unknown> {
    const search = new URLSearchParams({ ...query, ...(this.#space !== undefined && { space: this.#space }) });
    const url = search.size ? `${path}?${search}` : path;
    let response: Response;
    try {
      const headers = { Authorization: `Bearer ${this.#token}` };
      response = await fetch(url, { headers, cache: "no-store", credentials: "omit" });
    } catch {
      throw new ApiError("the gateway cannot be reached", 0, "unreachable");
    }
    const answer: unknown = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    const { payload } = answer as { payload?: { error?: string; message?: string } };
    throw new ApiError(payload?.message ?? `the gateway answered ${response.status}`, response.status, payload?.error ?? "");
  }
}
