"""mewstream: a gateway, a journal and a data pipeline for MEW Protocol streams."""

from mewstream.protocol.errors import MewError

__version__ = "0.1.0"

__all__ = ["MewError", "__version__"]
