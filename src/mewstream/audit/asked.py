"""What follows from an envelope: the records that it must cause, or the code with which it must be refused.

The checks come in the order of the protocol: shape, whether the stream exists, the sender's right, whether the
operation is valid now, whether the other participant is present. The rules are in :mod:`.messages`,
:mod:`.participants`, :mod:`.streams` and :mod:`.rights`.
"""

from __future__ import annotations

from mewstream.audit import messages, participants, rights, streams
from mewstream.audit.case import ROOM, Case
from mewstream.audit.records import ASKED, Expected
from mewstream.protocol import kinds

#: ``ASKED`` has the rules of these, which enter themselves.
MODULES = (messages, participants, streams, rights)
_NEEDED = {kinds.CHAT: "text", kinds.MCP_REQUEST: "method"}
#: What may be as large as any message: all others must be small.
_MAY_BE_LARGE = (messages.relay, messages.withdraw, messages.reject, streams.open_stream)


def judge(case: Case) -> list[Expected]:
    """What must follow. Raises :class:`~mewstream.audit.records.Refusal` or
    :class:`~mewstream.audit.records.Unjudged`."""
    judged_by = ASKED.get(case.kind, messages.relay)
    if judged_by not in _MAY_BE_LARGE:
        case.room(case.size() - ROOM, "control_bytes")
    if (required := _NEEDED.get(case.kind)) is not None:
        case.text(required, required=True)
    messages.paused_and_shut_down(case)
    consequences = judged_by(case)
    for each in consequences:
        each.rule, each.ts, each.cause_seq = judged_by.__name__, case.ts, each.cause_seq or case.seq
    return consequences
