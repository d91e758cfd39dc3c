/** What `import "mewstream"` gives in Node: the same as elsewhere, with a WebSocket of our own. */

import { connectBy } from "./connect.js";
import { NodeWebSocket } from "./node-websocket.js";

export * from "./exports.js";

/** Joins a space: see {@link Connect}. */
export const connect = connectBy(() => NodeWebSocket);
