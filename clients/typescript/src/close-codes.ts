/** Why the gateway closes a connection. After a code of 4500 or more, reconnecting unchanged would fail again. */
export const CloseCode = {
  DRAINING: 4000,
  SLOW_CONSUMER: 4001,
  REPLACED_BY_RECONNECT: 4002,
  JOURNAL_UNAVAILABLE: 4003,
  PING_TIMEOUT: 4004,
  SPACE_FULL: 4005,
  JOINS_TOO_OFTEN: 4006,
  BAD_TOKEN: 4500,
  KICKED: 4501,
  REPLACED: 4502,
  PROTOCOL_ERROR: 4503,
  UNKNOWN_SPACE: 4504,
  ORIGIN_REFUSED: 4505,
  TOKEN_EXPIRED: 4506,
  BANNED: 4507,
  JOIN_TIMEOUT: 1008,
  INVALID_TEXT: 1007,
  TOO_BIG: 1009,
  BAD_FRAMING: 1002,
  INTERNAL_ERROR: 1011,
} as const;

/** An orderly end. */
export const NORMAL = 1000;
/** The code of a connection that ended without a close. */
export const ABNORMAL = 1006;

const FINAL_STANDARD_CODES: ReadonlySet<number> = new Set([1002, 1003, 1007, 1008, 1010]);

/** Whether the gateway would accept the same client again after a close with this code. */
export function mayReconnect(code: number): boolean {
  return code < 4500 && !FINAL_STANDARD_CODES.has(code);
}
