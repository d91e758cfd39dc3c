import { ConnectError, RequestTimeoutError } from "./errors.js";
import type { Token } from "./joining.js";
import { websocketUrl } from "./joining.js";
import type { Backoff } from "./link.js";
import { Session } from "./session.js";
import { Space } from "./space.js";
import type { WebSocketConstructor } from "./websocket.js";

/** How to join a space. All times are in milliseconds. */
export interface ConnectOptions {
  /** The space; may be left out where the gateway serves only one. */
  readonly space?: string;
  /** Who we are; may be left out, because the token says it. */
  readonly participant?: string;
  /** It never appears in the URL. */
  readonly token?: Token;
  /** Whether and how to reconnect when the connection is lost; with `false`, the space ends instead. */
  readonly reconnect?: boolean | Backoff;
  /** How long connecting and joining may take; 10,000 by default. */
  readonly connectTimeout?: number;
  /** How long to wait for an answer, unless a call has its own `timeout`; 30,000 by default. */
  readonly requestTimeout?: number;
  /** For how long the gateway may be silent before it is asked whether it is there; 20,000 by default. */
  readonly heartbeat?: number;
  /** A WebSocket class to use in place of the platform's, such as that of the package `ws`. */
  readonly WebSocket?: WebSocketConstructor;
}

/**
 * Joins a space, and resolves to it when its participants and streams are known.
 *
 *     const space = await connect("ws://127.0.0.1:8080", { space: "demo", participant: "player1", token });
 *
 * Rejects with {@link JoinRefusedError} where the gateway refuses us for good, with {@link ConnectError} where there is no
 * connection, with {@link RequestTimeoutError} where a long list of streams does not come in time, and with whatever the
 * function for the token throws.
 */
export type Connect = (url: string, options?: ConnectOptions) => Promise<Space>;

/** The function that joins by the WebSocket of a platform. */
export function connectBy(platform: () => WebSocketConstructor | undefined): Connect {
  return async (url, options = {}) => {
    const { reconnect = true, requestTimeout = 30_000, heartbeat = 20_000 } = options;
    const WebSocket = options.WebSocket ?? platform();
    if (!WebSocket) throw new ConnectError("this platform has no WebSocket: give one as the option WebSocket");
    const join = {
      url: websocketUrl(url),
      space: options.space,
      participant: options.participant,
      token: options.token,
      WebSocket,
      timeout: options.connectTimeout ?? 10_000,
    };
    const backoff = reconnect === true ? {} : reconnect || undefined;
    const session = new Session(join, { backoff, requestTimeout, heartbeat });
    await session.link.open();
    await complete(session, requestTimeout);
    return new Space(session);
  };
}

/** Waits for the pages of what the welcome had no room for; usually there are none. */
async function complete(session: Session, timeout: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const text = `the gateway did not list everything within ${timeout} ms`;
    timer = setTimeout(() => reject(new RequestTimeoutError(text)), timeout);
  });
  try {
    await Promise.race([session.pages.complete(), late]);
    if (session.link.error) throw session.link.error;
  } catch (error) {
    await session.link.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
