export type { Connect, ConnectOptions } from "./connect.js";
export { CloseCode, mayReconnect } from "./close-codes.js";
export * from "./errors.js";
export type { Conditions, Ending, Proposed, Requested, SpaceEvent, SpaceEvents } from "./events.js";
export type { Frame } from "./frame.js";
export type { Token } from "./joining.js";
export type { Backoff, Resume } from "./link.js";
export type { LiveMap, LiveMapEvents } from "./live-map.js";
export type { ToolHandler, ToolOptions } from "./mcp.js";
export type { Proposal } from "./proposals.js";
export type { OnSlow, SubscribeOptions, Subscription } from "./queue.js";
export type { Invitation, MessageOptions, RequestOptions, Space, To } from "./space.js";
export type {
  AnnounceOptions,
  Delegation,
  Format,
  FrameData,
  GrantOptions,
  Reason,
  SendOptions,
  Stream,
  StreamOptions,
  WriteRequest,
} from "./stream.js";
export type { Participant } from "./view.js";
export type { WebSocketConstructor, WebSocketLike } from "./websocket.js";
export type { Capability, JsonObject, Message, Position } from "./wire.js";
