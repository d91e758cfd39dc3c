"""How long things are looked at together."""

WINDOW_SECONDS = 10
"""The length of a window of ``stream_metrics``."""

GAP_HEALS_WITHIN_SECONDS = 3600
"""How long after a gap in sequence numbers the missing ones may come and heal it."""
