import type { JsonObject } from "./wire.js";

/** The root of every error of this package. */
export class MewError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** There is no connection. The message says why, as far as it is known: a browser does not tell a page much. */
export class ConnectError extends MewError {}

/** The gateway did not let us in, and would not do so next time. */
export class JoinRefusedError extends ConnectError {
  constructor(
    message: string,
    /** The gateway's error code, or the WebSocket close code where there is none. */
    readonly code: string | number,
  ) {
    super(message);
  }
}

/** The space has ended: closed here, or by the gateway for good. */
export class ConnectionClosedError extends MewError {
  constructor(
    message: string,
    /** The WebSocket close code; see {@link CloseCode}. 1000 where we closed it ourselves. */
    readonly code: number,
  ) {
    super(message);
  }
}

/** The connection was lost before the gateway confirmed the last frames: it may or may not have them. */
export class FramesUnconfirmedError extends MewError {
  constructor(
    /** How many frames. */
    readonly count: number,
    reason: string,
  ) {
    const frames = count === 1 ? "frame" : `${count} frames`;
    super(`the connection was lost before the gateway confirmed the last ${frames} (${reason})`);
  }
}

/** Nobody answered in time. It is not known whether the request was carried out. */
export class RequestTimeoutError extends MewError {}

/** The other participant answered a request with an error. */
export class McpError extends MewError {
  constructor(
    message: string,
    /** The code of JSON-RPC. */
    readonly code: number = -32000,
    readonly data?: unknown,
  ) {
    super(message);
  }
}

/** Our proposal was rejected or withdrawn. */
export class ProposalRejectedError extends MewError {
  constructor(
    message: string,
    /** The participant who did it. */
    readonly by: string,
  ) {
    super(message);
  }
}

/**
 * The gateway refused something. Each code of the protocol has a class of its own; a code of a newer gateway gives a
 * plain `RefusedError`.
 */
export class RefusedError extends MewError {
  /** The code of the class. */
  static readonly code: string = "";
  /** The code of the protocol, such as `stream_not_found`. */
  readonly code: string;

  constructor(
    message: string,
    /** The other fields of the error, as docs/protocol.md lists them for each code. */
    readonly details: JsonObject = {},
    code: string = new.target.code,
  ) {
    super(message);
    this.code = code;
  }
}

/** The message has the wrong shape. */
export class ValidationError extends RefusedError {
  static override readonly code = "validation_error";
}

/** An id that was used for another message. */
export class InvalidRequestError extends RefusedError {
  static override readonly code = "invalid_request";
}

/** Our capabilities do not allow it. */
export class CapabilityViolationError extends RefusedError {
  static override readonly code = "capability_violation";
}

/** Only the gateway sends messages of this kind. */
export class ReservedKindError extends RefusedError {
  static override readonly code = "reserved_kind";
}

/** We are not the owner of the stream, or the token is wrong. */
export class UnauthorizedError extends RefusedError {
  static override readonly code = "unauthorized";
}

/** We are not a writer of the stream. */
export class UnauthorizedStreamWriteError extends RefusedError {
  static override readonly code = "unauthorized_stream_write";
}

/** There is no such stream, or it has ended. */
export class StreamNotFoundError extends RefusedError {
  static override readonly code = "stream_not_found";
}

/** The participant is not known in this space, or not connected; the message says which. */
export class ParticipantNotFoundError extends RefusedError {
  static override readonly code = "participant_not_found";
}

/** A reader of a new stream is not known in this space. */
export class TargetNotFoundError extends RefusedError {
  static override readonly code = "target_not_found";
}

/** It is not possible in the present state. */
export class InvalidOperationError extends RefusedError {
  static override readonly code = "invalid_operation";
}

/** The name or id is taken. */
export class AlreadyExistsError extends RefusedError {
  static override readonly code = "already_exists";
}

/** The sequence number of a frame did not grow. */
export class SequenceRegressionError extends RefusedError {
  static override readonly code = "sequence_regression";
}

/** The content is not of its format, or the stream has no such format. */
export class FormatViolationError extends RefusedError {
  static override readonly code = "format_violation";
}

/** What was asked of the past is not kept any more. `details.first_seq` is where it begins. */
export class HistoryGoneError extends RefusedError {
  static override readonly code = "history_gone";
}

/** The stream has several formats, and the frame does not say which it has. */
export class FormatRequiredError extends RefusedError {
  static override readonly code = "format_required";
}

/** A limit of the gateway; `details.limit` names the setting. */
export class LimitExceededError extends RefusedError {
  static override readonly code = "limit_exceeded";
}

/** The gateway cannot record at the moment: nothing was done. */
export class JournalUnavailableError extends RefusedError {
  static override readonly code = "journal_unavailable";
}
