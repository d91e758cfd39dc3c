import {
  AlreadyExistsError,
  CapabilityViolationError,
  FormatRequiredError,
  FormatViolationError,
  HistoryGoneError,
  InvalidOperationError,
  InvalidRequestError,
  JournalUnavailableError,
  LimitExceededError,
  ParticipantNotFoundError,
  RefusedError,
  ReservedKindError,
  SequenceRegressionError,
  StreamNotFoundError,
  TargetNotFoundError,
  UnauthorizedError,
  UnauthorizedStreamWriteError,
  ValidationError,
} from "./errors.js";
import type { JsonObject } from "./wire.js";
import { string } from "./wire.js";

const BY_CODE = new Map(
  [
    ...[ValidationError, InvalidRequestError, CapabilityViolationError, ReservedKindError, UnauthorizedError],
    ...[UnauthorizedStreamWriteError, StreamNotFoundError, ParticipantNotFoundError, TargetNotFoundError],
    ...[InvalidOperationError, AlreadyExistsError, SequenceRegressionError, FormatViolationError],
    ...[FormatRequiredError, HistoryGoneError, LimitExceededError, JournalUnavailableError],
  ].map((each) => [each.code as string, each]),
);

/** The error in the payload of a `system/error`, which may contain anything. */
export function refusal(payload: JsonObject): RefusedError {
  const { error, message, ...details } = payload;
  const code = string(error) ?? "unknown";
  const kind = BY_CODE.get(code) ?? RefusedError;
  return new kind(string(message) || code, details, code);
}
