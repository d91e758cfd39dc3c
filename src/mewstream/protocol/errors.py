"""The errors of mewstream.

Own mistakes and the peer's mistakes are different types: a :class:`PeerError` never reaches a
caller of :func:`mewstream.protocol.decide.decide`, it becomes a refusal that the peer is told.

    MewError
    ├── ConfigError                 our operator's mistake: one clear line, exit code 2
    └── PeerError                   the peer's mistake: carries the wire code and the HTTP status
        ├── ValidationFailed        validation_error            400
        ├── InvalidRequest          invalid_request             400
        ├── CapabilityViolation     capability_violation        403
        ├── ReservedKind            reserved_kind               400
        ├── Unauthorized            unauthorized                403
        ├── UnauthorizedStreamWrite unauthorized_stream_write   403
        ├── StreamNotFound          stream_not_found            404
        ├── ParticipantNotFound     participant_not_found       404
        ├── TargetNotFound          target_not_found            404
        ├── InvalidOperation        invalid_operation           400
        ├── AlreadyExists           already_exists              409
        ├── HistoryGone             history_gone                410
        ├── SequenceRegression      sequence_regression         400
        ├── FormatViolation         format_violation            400
        ├── FormatRequired          format_required             400
        ├── LimitExceeded           limit_exceeded              429 (413 for sizes)
        └── JournalUnavailable      journal_unavailable         503
"""

from __future__ import annotations

from typing import Any, ClassVar


class MewError(Exception):
    """Root of every error that mewstream raises on purpose."""


class ConfigError(MewError):
    """The configuration cannot be used. The text names the file, the key and the way out."""


class PeerError(MewError):
    """The peer did something that is refused.

    ``details`` become fields of the error payload beside ``error`` and ``message``.
    """

    code: ClassVar[str] = "invalid_request"
    http_status: int = 400

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.envelope_id: str | None = None
        """The id of the message that has the flaw, if that much of it could be read."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the record of a refusal says of this error."""
        return {
            "code": self.code,
            "message": self.message,
            "http_status": self.http_status,
            "details": self.details,
        }

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of the ``system/error`` for a peer whose refusal is not recorded."""
        return {"error": self.code, "message": self.message, **self.details}


class ValidationFailed(PeerError):
    code = "validation_error"


class InvalidRequest(PeerError):
    code = "invalid_request"


class CapabilityViolation(PeerError):
    code = "capability_violation"
    http_status = 403


class ReservedKind(PeerError):
    code = "reserved_kind"


class Unauthorized(PeerError):
    code = "unauthorized"
    http_status = 403


class UnauthorizedStreamWrite(PeerError):
    code = "unauthorized_stream_write"
    http_status = 403


class StreamNotFound(PeerError):
    code = "stream_not_found"
    http_status = 404


class ParticipantNotFound(PeerError):
    code = "participant_not_found"
    http_status = 404


class TargetNotFound(PeerError):
    code = "target_not_found"
    http_status = 404


class InvalidOperation(PeerError):
    code = "invalid_operation"


class AlreadyExists(PeerError):
    code = "already_exists"
    http_status = 409


class HistoryGone(PeerError):
    """Frames that were asked for are not kept any more. ``first_seq`` in the details is where reading can begin."""

    code = "history_gone"
    http_status = 410


class SequenceRegression(PeerError):
    code = "sequence_regression"


class FormatViolation(PeerError):
    code = "format_violation"


class FormatRequired(PeerError):
    code = "format_required"


_SIZES = frozenset(
    {
        *("message_bytes", "stream_metadata_bytes", "stream_metadata_values", "schema_bytes", "id_bytes"),
        *("control_bytes", "capability_list_bytes"),
    }
)


class LimitExceeded(PeerError):
    """A limit was reached; ``limit`` names the setting that the operator can change."""

    code = "limit_exceeded"
    http_status = 429

    def __init__(self, message: str, *, limit: str, **details: Any) -> None:
        super().__init__(message, limit=limit, **details)
        if limit in _SIZES:
            self.http_status = 413


class JournalUnavailable(PeerError):
    code = "journal_unavailable"
    http_status = 503


#: The error of each code.
BY_CODE: dict[str, type[PeerError]] = {each.code: each for each in PeerError.__subclasses__()}
