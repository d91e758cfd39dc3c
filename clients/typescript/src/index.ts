import { connectBy } from "./connect.js";

export * from "./exports.js";

/**
 * Joins a space, and resolves to it when its participants and streams are known.
 *
 *     const space = await connect("ws://127.0.0.1:8080", { space: "demo", participant: "player1", token });
 *
 * Rejects with {@link JoinRefusedError} where the gateway refuses us for good, with {@link ConnectError} where there is
 * no connection, with {@link RequestTimeoutError} where a long list of streams does not come in time, and with whatever
 * the function for the token throws.
 */
export const connect = connectBy(() => globalThis.WebSocket);
