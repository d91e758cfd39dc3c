"""The SDK without ``async``, for notebooks and scripts.

    with mewstream.sync.connect("ws://127.0.0.1:8080", space="demo", participant="me", token=token) as space:
        with space.open_stream(description="positions") as stream:
            stream.send({"x": 1})
        for frame in space.subscribe("stream-1"):
            ...

It has the names, attributes and exceptions of :mod:`mewstream.client`; its functions block instead of being awaited,
and have the same documentation. A thread of its own serves the connection, so that it stays alive while your code
computes.
"""

from mewstream.sync.calling import Proposal as Proposal
from mewstream.sync.connecting import connect as connect
from mewstream.sync.feeds import Events as Events
from mewstream.sync.feeds import Subscription as Subscription
from mewstream.sync.space import Space as Space
from mewstream.sync.stream import Stream as Stream
from mewstream.sync.stream import Streams as Streams
