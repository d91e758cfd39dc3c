import { ConnectError } from "./errors.js";
import type { Token } from "./joining.js";
import { websocketUrl } from "./joining.js";
import type { Backoff } from "./link.js";
import { Session } from "./session.js";
import { Space } from "./space.js";
import { within } from "./timing.js";
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

/** The type of {@link connect}. */
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
    try {
      // The welcome may have had no room for everything.
      const text = `the gateway did not list everything within ${requestTimeout} ms`;
      await within(session.pages.complete(), requestTimeout, text);
      if (session.link.error) throw session.link.error;
    } catch (error) {
      await session.link.close();
      throw error;
    }
    return new Space(session);
  };
}
