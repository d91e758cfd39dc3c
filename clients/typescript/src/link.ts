import { ABNORMAL, NORMAL } from "./close-codes.js";
import type { Tally } from "./confirmations.js";
import { Confirmations } from "./confirmations.js";
import { ConnectError, ConnectionClosedError, JoinRefusedError } from "./errors.js";
import { headOf } from "./frame.js";
import type { Connection, JoinOptions, Receiver } from "./joining.js";
import { isRetried, join } from "./joining.js";
import type { Routes } from "./routes.js";
import { sleep, within } from "./timing.js";
import type { Message, Position } from "./wire.js";
import { encode, integer, object, parse, string } from "./wire.js";

/** When and how often to reconnect. Each delay is random between 0 and a bound that doubles with every attempt. */
export interface Backoff {
  /** The bound before the first attempt, in milliseconds; 200 by default. */
  readonly first?: number;
  /** The bound that is never exceeded, in milliseconds; 20,000 by default. */
  readonly most?: number;
  /** How many attempts may fail in a row before the space ends; any number by default. */
  readonly attempts?: number;
}

/** What a reconnect has recovered. */
export interface Resume {
  /** Whether everything that was missed follows. */
  readonly recovered: boolean;
  /** Why not, where it does not. */
  readonly reason?: string;
  /** The positions of the first and the last thing that was missed, as far as the gateway knows them. */
  readonly fromSeq?: number;
  readonly toSeq?: number;
  /** How many of our frames were sent on the lost connection and never confirmed. */
  readonly unconfirmed: number;
}

/** Gets what a link receives. */
export interface LinkOwner {
  readonly routes: Routes;
  envelope(message: Message): void;
  welcomed(welcome: Message, resume: Resume | undefined): void;
  connectionLost(code: number): void;
  disconnected(reason: string): void;
  ended(error: ConnectionClosedError): void;
  nextId(): string;
}

interface Waiting {
  send(connection: Connection): void;
  resolve(): void;
  reject(error: unknown): void;
}

/** Sending waits while more than this is buffered. */
const HIGH_WATER = 1 << 20;
/** A WebSocket does not tell when its buffer is empty, so that one has to look. */
const POLL_MS = 5;
/** After this many frames, other work gets a turn, even if the gateway keeps up. */
const FRAMES_PER_TURN = 256;
/** After a connection that lasted longer than this, the delays before reconnecting begin anew. */
const GOOD_MS = 5000;

const HASH = 0x23;

/** A connection that is made again whenever it is lost, until the link is closed. */
export class Link implements Receiver {
  /** Why the link has ended. */
  error?: ConnectionClosedError;
  epoch = "";
  readonly closed: Promise<ConnectionClosedError>;
  readonly #options: JoinOptions;
  readonly #owner: LinkOwner;
  readonly #routes: Routes;
  readonly #backoff: Backoff | undefined;
  readonly #requestTimeout: number;
  readonly #heartbeat: number;
  readonly #confirmations = new Confirmations();
  #connection: Connection | undefined;
  #isDraining = false;
  #wasWelcomed = false;
  #seq = 0;
  #connectedAt = 0;
  /** Frames that were unconfirmed when the connection was lost, until a resume reports them. */
  #unreported = 0;
  #framesInTurn = 0;
  /** For how many intervals of the heartbeat nothing has come. */
  #silence = 0;
  #heartbeatTimer: ReturnType<typeof setInterval> | undefined;
  /** Those who want to send and have to wait, in order. */
  readonly #waiting: Waiting[] = [];
  #pollTimer: ReturnType<typeof setTimeout> | undefined;
  #resolveClosed!: (error: ConnectionClosedError) => void;
  #attempt = 0;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  /** Ends an attempt to join that is under way when the link ends. */
  readonly #ending = new AbortController();

  constructor(
    options: JoinOptions,
    owner: LinkOwner,
    settings: { backoff: Backoff | undefined; requestTimeout: number; heartbeat: number },
  ) {
    this.#options = options;
    this.#owner = owner;
    this.#routes = owner.routes;
    this.#backoff = settings.backoff;
    this.#requestTimeout = settings.requestTimeout;
    this.#heartbeat = settings.heartbeat;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /** The place of the newest message received. */
  get position(): Position {
    return { epoch: this.epoch, seq: this.#seq };
  }

  // -- sending --------------------------------------------------------------------------------------

  /** A connection to which something can be sent now; undefined where one has to wait. Throws where none will come. */
  #current(): Connection | undefined {
    if (this.error) throw new ConnectionClosedError(this.error.message, this.error.code);
    if (this.#isDraining) {
      throw new ConnectionClosedError("this space is being drained: nothing more can be sent", NORMAL);
    }
    return this.#connection && this.#connection.buffered <= HIGH_WATER ? this.#connection : undefined;
  }

  /**
   * Calls `send` with a connection: at once where that is possible, and never before those who wait already, so that
   * what is sent stays in order. Rejects with {@link ConnectionClosedError} where there will be no connection.
   */
  async whenReady(send: (connection: Connection) => void): Promise<void> {
    const connection = this.#current();
    if (connection && this.#waiting.length === 0) {
      send(connection);
      return;
    }
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ send, resolve, reject });
      if (this.#waiting.length === 1) this.#release();
    });
  }

  /** Lets those send who wait, as far as there is room. */
  #release(): void {
    clearTimeout(this.#pollTimer);
    try {
      for (;;) {
        const connection = this.#current();
        if (!connection || this.#waiting.length === 0) break;
        const { send, resolve } = this.#waiting.shift() as Waiting;
        send(connection);
        resolve();
      }
    } catch (error) {
      for (const { reject } of this.#waiting.splice(0)) reject(error);
    }
    if (this.#connection && this.#waiting.length) this.#pollTimer = setTimeout(() => this.#release(), POLL_MS);
  }

  /** Sends an envelope without waiting, if there is a connection; otherwise it is not sent at all. */
  post(body: string): void {
    this.#connection?.send(body);
  }

  /** Sends a frame and counts it. */
  async sendFrame(message: string | Uint8Array<ArrayBuffer>, tally: Tally): Promise<void> {
    await this.whenReady((connection) => {
      this.#confirmations.sent(tally, message.length);
      connection.send(message);
    });
    if (++this.#framesInTurn >= FRAMES_PER_TURN) {
      this.#framesInTurn = 0;
      await sleep(0);
    }
  }

  /** Waits until the gateway has recorded everything sent so far, over as many connections as it takes. */
  async roundTrip(tally?: Tally): Promise<void> {
    const until = Date.now() + this.#requestTimeout;
    for (;;) {
      tally?.report();
      const isConfirmed = await this.#sync(until);
      if (isConfirmed && !tally?.unsure) return;
    }
  }

  flush(): Promise<void> {
    return this.roundTrip(this.#confirmations.total);
  }

  /** Whether the gateway confirmed what was sent before the connection was lost. */
  async #sync(until: number, connection?: Connection): Promise<boolean> {
    const id = this.#owner.nextId();
    let isOver = false;
    const answered = new Promise<boolean>((resolve, reject) => {
      const send = (ready: Connection): void => {
        if (isOver) return;
        this.#confirmations.begin(id, resolve);
        ready.send(encode("stream/sync", {}, { id }));
      };
      if (connection) send(connection);
      else this.whenReady(send).catch(reject);
    });
    try {
      const text = `the gateway confirmed nothing within ${this.#requestTimeout} ms`;
      return await within(answered, until - Date.now(), text);
    } finally {
      isOver = true;
      this.#confirmations.forget(id);
    }
  }

  /** The gateway has answered a `stream/sync`. */
  synced(id: string): void {
    this.#confirmations.synced(id);
  }

  // -- as the receiver of a connection ----------------------------------------------------------------

  message(data: string | Uint8Array): void {
    this.#silence = 0;
    const first = typeof data === "string" ? data.charCodeAt(0) : data[0];
    if (first === HASH) {
      const head = headOf(data);
      if (!head) return;
      this.#seq = Math.max(this.#seq, head.seq);
      this.#routes.frame(data, head);
      return;
    }
    const message = typeof data === "string" ? parse(data) : undefined;
    if (!message) return;
    try {
      this.#owner.envelope(message);
    } finally {
      // Even one that cannot be handled counts as received: a resume would bring it again and again.
      this.#seq = Math.max(this.#seq, message.seq ?? 0);
    }
  }

  lost(connection: Connection, code: number, reason: string): void {
    if (connection !== this.#connection) return;
    this.#connection = undefined;
    clearInterval(this.#heartbeatTimer);
    const why = reason || `the gateway closed the connection (${code})`;
    this.#owner.connectionLost(code);
    this.#unreported += this.#confirmations.lost(why);
    if (this.error || this.#isDraining) return;
    if (!this.#backoff || !isRetried(code)) {
      const how = code === ABNORMAL ? "the connection was lost" : "the gateway closed the connection";
      this.#end(new ConnectionClosedError(reason ? `${how}: ${reason}` : how, code));
      return;
    }
    void this.#reconnect(this.#backoff, code);
    this.#owner.disconnected(why);
  }

  // -- connecting and reconnecting --------------------------------------------------------------------

  /** Joins the space, and keeps a connection to it from now on. */
  async open(): Promise<void> {
    await this.#join();
  }

  #join(resume?: Position): Promise<void> {
    return join(this.#options, resume, (...welcome) => this.#welcomed(...welcome), this.#ending.signal);
  }

  #welcomed(welcome: Message, connect: (receiver: Receiver) => Connection): void {
    const connection = connect(this);
    if (this.error) {
      void connection.close();
      return;
    }
    const { payload } = welcome;
    const resumed = object(payload["resume"]);
    const from = integer(resumed["from_seq"]);
    const recovered = resumed["recovered"] === true && from !== undefined;
    this.epoch = string(payload["epoch"]) ?? "";
    // What is replayed after the welcome has lower positions than the welcome.
    this.#seq = recovered ? from - 1 : (integer(payload["seq"]) ?? welcome.seq ?? 0);
    this.#connection = connection;
    this.#connectedAt = Date.now();
    this.#silence = 0;
    this.#heartbeatTimer = setInterval(() => this.#beat(connection), this.#heartbeat);
    let resume: Resume | undefined;
    if (this.#wasWelcomed) {
      const reason = recovered ? undefined : (string(resumed["reason"]) ?? "this gateway cannot resume");
      resume = { recovered, reason, fromSeq: from, toSeq: integer(resumed["to_seq"]), unconfirmed: this.#unreported };
      this.#unreported = 0;
    }
    this.#wasWelcomed = true;
    this.#owner.welcomed(welcome, resume);
    this.#release();
  }

  /** A dead network says nothing: a gateway that was silent for an interval is asked, and given up after another. */
  #beat(connection: Connection): void {
    this.#silence++;
    if (this.#silence === 2) connection.send(encode("stream/sync", {}, { id: this.#owner.nextId() }));
    if (this.#silence > 2) connection.abandon("nothing came from the gateway, not even an answer");
  }

  async #reconnect(backoff: Backoff, code: number): Promise<void> {
    const { first = 200, most = 20_000, attempts = Infinity } = backoff;
    if (Date.now() - this.#connectedAt > GOOD_MS) this.#attempt = 0;
    for (let failures = 0; ; failures++) {
      const delay = Math.random() * Math.min(most, first * 2 ** this.#attempt++);
      await new Promise((resolve) => (this.#retryTimer = setTimeout(resolve, delay)));
      try {
        await this.#join(this.position);
        return;
      } catch (error) {
        if (this.error) return;
        if (error instanceof JoinRefusedError || failures + 1 >= attempts) {
          const why = error instanceof ConnectError ? error.message : "there is no token for it";
          this.#end(new ConnectionClosedError(`the connection could not be made again: ${why}`, code));
          return;
        }
      }
    }
  }

  // -- the end ----------------------------------------------------------------------------------------

  /** Sends nothing more, waits until everything sent is recorded and its answers have come, and leaves. */
  async drain(): Promise<void> {
    if (this.error || this.#isDraining) {
      await this.closed;
      return;
    }
    this.#isDraining = true;
    this.#release();
    const { total } = this.#confirmations;
    try {
      if (!this.#connection) {
        total.unsure = this.#unreported;
        total.report();
      } else {
        total.unsure = 0; // an event has reported these
        await this.#sync(Date.now() + this.#requestTimeout, this.#connection);
        total.report();
      }
    } finally {
      await this.close();
    }
  }

  /** Leaves at once. */
  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#end(new ConnectionClosedError("this space was closed here", NORMAL));
    await connection?.close();
  }

  #end(error: ConnectionClosedError): void {
    if (this.error) return;
    this.error = error;
    clearInterval(this.#heartbeatTimer);
    clearTimeout(this.#retryTimer); // where the delay never ends, nothing is retried
    this.#ending.abort();
    this.#confirmations.lost(error.message);
    this.#owner.ended(error);
    this.#release();
    this.#resolveClosed(error);
  }
}
