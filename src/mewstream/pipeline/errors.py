"""What can be wrong with the pipeline.

MewError
└── PipelineError           what was found, what was expected, what to do
    ├── NoJava              Spark needs a Java of 17 or 21, and there is none
    ├── SourceError         the source was asked for what it cannot give: an option, a position
    └── WarehouseError      the tables are not where, or what, they should be; or somebody else is writing them
"""

from __future__ import annotations

import re

from mewstream.protocol.errors import MewError


class PipelineError(MewError):
    """The pipeline cannot run as it was asked to. The text is one line for the user."""


class NoJava(PipelineError):
    pass


class SourceError(PipelineError):
    pass


class WarehouseError(PipelineError):
    pass


_OWN = re.compile(r"^(?:Caused by: \S+ )?mewstream\.[\w.]+\.\w+: (?P<text>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def own_words(error: BaseException) -> str | None:
    """What we said, where an error of Spark carries an error of ours: those that are raised in the source come back as
    text, with the traceback of another process around it. None where it is Spark's own."""
    if isinstance(error, MewError):
        return str(error)
    found = _OWN.findall(str(error))
    return str(found[-1]) if found else None
