/** What `import "mewstream"` gives in Node: the same as elsewhere, with a WebSocket of our own. */

import { connectBy } from "./connect.js";
import { NodeWebSocket } from "./node-websocket.js";

export * from "./exports.js";

/** Joins a space, as the function of the same name for other platforms does. */
export const connect = connectBy(() => NodeWebSocket);
