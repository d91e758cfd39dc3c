/** Envelopes on the wire. Nothing that comes from there is certain: what is malformed becomes an empty value. */

export const PROTOCOL = "mew/v0.4";
export const GATEWAY = "system:gateway";

/** A JSON object of which nothing is known. */
export interface JsonObject {
  readonly [key: string]: unknown;
}

/** A pattern of messages that a participant may send; see the chapter on capabilities in docs/protocol.md. */
export interface Capability {
  readonly kind: string;
  readonly payload?: unknown;
}

/** A place in the log of a space: the run of the gateway, and a number that grows with everything that happens. */
export interface Position {
  readonly epoch: string;
  readonly seq: number;
}

/** An envelope that somebody in the space sent. */
export interface Message {
  readonly kind: string;
  readonly id: string;
  /** When it was sent, in the form of RFC 3339. */
  readonly ts: string;
  /** The sender. No participant can send as another, or as the gateway. */
  readonly from: string;
  /** Whom it is meant for; empty where that is everyone. */
  readonly to: readonly string[];
  /** The messages that it answers or belongs to. */
  readonly correlationId: readonly string[];
  readonly context?: string;
  readonly payload: JsonObject;
  /** Its position in the space; undefined where it has none. */
  readonly seq?: number;
}

/** The envelope in a text; undefined where there is none. */
export function parse(text: string): Message | undefined {
  let fields: JsonObject;
  try {
    fields = object(JSON.parse(text));
  } catch {
    return undefined;
  }
  const kind = string(fields["kind"]);
  if (!kind) return undefined;
  return {
    kind,
    id: string(fields["id"]) ?? "",
    ts: string(fields["ts"]) ?? "",
    from: string(fields["from"]) ?? "",
    to: names(fields["to"]),
    correlationId: names(fields["correlation_id"]),
    context: string(fields["context"]),
    payload: object(fields["payload"]),
    seq: integer(fields["seq"]),
  };
}

/** An envelope to send. The gateway fills in its sender and its time. Fields that are undefined are left out. */
export function encode(
  kind: string,
  payload: unknown,
  fields: { id: string; to?: readonly string[]; correlation_id?: readonly string[]; context?: string },
): string {
  return JSON.stringify({ protocol: PROTOCOL, kind, ...fields, payload });
}

/** The id of the stream that a payload names, by `stream_id` or by `stream`; empty where it names none. */
export function streamOf(payload: JsonObject): string {
  return string(payload["stream_id"]) || string(object(payload["stream"])["stream_id"]) || "";
}

export function string(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** An integer that JavaScript knows exactly. */
export function integer(value: unknown): number | undefined {
  return Number.isSafeInteger(value) ? (value as number) : undefined;
}

export function object(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

export function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

export function objects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

export function capabilities(value: unknown): Capability[] {
  return objects(value).flatMap((each) => {
    const kind = string(each["kind"]);
    return kind === undefined ? [] : [{ ...each, kind }];
  });
}

/** A list of names from a list or from one name. */
export function names(value: unknown): string[] {
  return typeof value === "string" ? [value] : strings(value);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
