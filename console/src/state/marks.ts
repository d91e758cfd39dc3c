/** What happened, one thing after the other. */

export type MarkKind =
  | "opened"
  | "started"
  | "closed"
  | "granted"
  | "revoked"
  | "readGranted"
  | "readRevoked"
  | "transferred"
  | "asked"
  | "denied"
  | "refused"
  | "gap"
  | "joined"
  | "suspended"
  | "left"
  | "invited"
  | "kicked"
  | "paused"
  | "continued"
  | "chat"
  | "proposed"
  | "fulfilled"
  | "rejected"
  | "withdrawn"
  | "disconnected"
  | "resumed";

export interface Mark {
  readonly at: number;
  readonly kind: MarkKind;
  /** Counts the marks of this page. */
  readonly number: number;
  /** The id of the stream that it belongs to. */
  readonly stream?: string;
  /** Whom it is about. */
  readonly who?: string;
  /** Who did it. */
  readonly by?: string;
  readonly reason?: string;
  /** More words: of a message, or of a refusal. */
  readonly text?: string;
  readonly count?: number;
  readonly seq?: number;
}

/** What a mark says, as one sentence without its time. `name` is the title of a stream. */
export function sentence(mark: Mark, name: (stream: string) => string): string {
  const stream = mark.stream === undefined ? "all streams" : name(mark.stream);
  const who = mark.who ?? "somebody";
  const by = mark.by === undefined || mark.by === "system:gateway" ? "the gateway" : mark.by;
  const why = mark.reason ? ` (${mark.reason})` : "";
  switch (mark.kind) {
    case "opened":
      return `${who} opened ${stream}`;
    case "started":
      return `${stream} is live`;
    case "closed":
      return mark.by ? `${by} ended ${stream}${why}` : `${stream} ended${why}`;
    case "granted":
      return `${by} let ${who} write to ${stream}${why}`;
    case "revoked":
      return `${by} took the right to write to ${stream} from ${who}${why}`;
    case "readGranted":
      return `${by} let ${who} read ${stream}${why}`;
    case "readRevoked":
      return `${by} took the right to read ${stream} from ${who}${why}`;
    case "transferred":
      return `${by} made ${who} the owner of ${stream}${why}`;
    case "asked":
      return `${who} asks to write to ${stream}${why}`;
    case "denied":
      return `${by} denied ${who} to write to ${stream}${why}`;
    case "refused":
      return `${who} was refused${mark.stream ? ` on ${stream}` : ""}: ${mark.text ?? ""}${times(mark.count)}`;
    case "gap":
      return `${mark.count ?? "some"} frames of ${stream} are missing${why}`;
    case "joined":
      return `${who} joined`;
    case "suspended":
      return `${who} lost the connection`;
    case "left":
      return `${who} left`;
    case "invited":
      return `${by} invited ${who}`;
    case "kicked":
      return `${by} removed ${who} from the space${why}`;
    case "paused":
      return `${by} paused ${who}${why}`;
    case "continued":
      return `${by} let ${who} continue`;
    case "chat":
      return `${who}: ${mark.text ?? ""}`;
    case "proposed":
      return `${who} proposes ${mark.text ?? ""}`;
    case "fulfilled":
      return `${by} approved a proposal of ${who}`;
    case "rejected":
      return `${by} rejected a proposal of ${who}${why}`;
    case "withdrawn":
      return `${who} withdrew a proposal${why}`;
    case "disconnected":
      return `the connection of this page was lost${why}`;
    case "resumed":
      return `this page is connected again${mark.text ? `: ${mark.text}` : ""}`;
  }
}

function times(count: number | undefined): string {
  return count === undefined || count === 1 ? "" : ` (${count} times)`;
}
