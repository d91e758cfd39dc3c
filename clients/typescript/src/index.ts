import { connectBy } from "./connect.js";

export * from "./exports.js";

/** Joins a space: see {@link Connect}. */
export const connect = connectBy(() => globalThis.WebSocket);
