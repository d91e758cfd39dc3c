"""A session that shows everything: ``make demo``, or ``python -m mewstream.demo``.

A real gateway in a process of its own, real participants over real sockets, then the pipeline over its journal.
"""
