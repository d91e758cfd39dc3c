"""The auditor: judges the control records of a space, from the log alone and by a state machine of its own.

It is written from ``docs/protocol.md`` and shares names with :mod:`mewstream.protocol` (kinds, codes, the language of
patterns, the form of times) and no rule, so that a mistake of the gateway is not repeated here. What was asked, what
the state was and what may follow from both decides; the words of a message decide nothing. :mod:`.auditor` reads
records in order, :mod:`.asked` says what follows from envelopes, :mod:`.happened` what the gateway may do by itself,
:mod:`.refused` which refusals are right, and :mod:`.state` what the log says, whether that was right or not: one fault
is one finding. ``docs/audit.md`` lists the rules.
"""

from mewstream.audit.auditor import SpaceAuditor
from mewstream.audit.records import ControlRecord, Finding

__all__ = ["ControlRecord", "Finding", "SpaceAuditor"]
