"""The kinds of envelopes that the gateway knows, by name.

Unknown kinds are relayed under capability control; only those below mean something here.
"""

from __future__ import annotations

PROTOCOL = "mew/v0.4"
GATEWAY = "system:gateway"

WELCOME = "system/welcome"
PRESENCE = "system/presence"
ERROR = "system/error"
NOTICE = "system/notice"
JOIN = "system/join"

CHAT = "chat"
MCP_REQUEST = "mcp/request"
MCP_RESPONSE = "mcp/response"
MCP_PROPOSAL = "mcp/proposal"
MCP_WITHDRAW = "mcp/withdraw"
MCP_REJECT = "mcp/reject"

CAPABILITY_GRANT = "capability/grant"
CAPABILITY_REVOKE = "capability/revoke"
CAPABILITY_GRANT_ACK = "capability/grant-ack"
INVITE = "space/invite"
INVITE_ACK = "space/invite-ack"
UNINVITE = "space/uninvite"
KICK = "space/kick"
UNBAN = "space/unban"
PARTICIPANT_LIST = "participant/list"
PARTICIPANT_LISTED = "participant/listed"
PAUSE = "participant/pause"
RESUME = "participant/resume"
SHUTDOWN = "participant/shutdown"
STATUS = "participant/status"
REQUEST_STATUS = "participant/request-status"
FORGET = "participant/forget"
COMPACT = "participant/compact"
COMPACT_DONE = "participant/compact-done"
CLEAR = "participant/clear"
RESTART = "participant/restart"
CHAT_ACKNOWLEDGE = "chat/acknowledge"

STREAM_LIST = "stream/list"
STREAM_LISTED = "stream/listed"
STREAM_SYNC = "stream/sync"
STREAM_SYNCED = "stream/synced"
STREAM_SUBSCRIBE = "stream/subscribe"
STREAM_SUBSCRIBED = "stream/subscribed"
STREAM_UNSUBSCRIBE = "stream/unsubscribe"
STREAM_UNSUBSCRIBED = "stream/unsubscribed"
STREAM_REQUEST = "stream/request"
STREAM_OPEN = "stream/open"
STREAM_CLOSE = "stream/close"
STREAM_ANNOUNCE = "stream/announce"
STREAM_READY = "stream/ready"
STREAM_START = "stream/start"
STREAM_DATA = "stream/data"
STREAM_COMPLETE = "stream/complete"
STREAM_ERROR = "stream/error"
GRANT_WRITE = "stream/grant-write"
REVOKE_WRITE = "stream/revoke-write"
TRANSFER_OWNERSHIP = "stream/transfer-ownership"
GRANT_READ = "stream/grant-read"
REVOKE_READ = "stream/revoke-read"
REQUEST_WRITE = "stream/request-write"
DENY_WRITE = "stream/deny-write"
WRITE_GRANTED = "stream/write-granted"
WRITE_REVOKED = "stream/write-revoked"
WRITE_DENIED = "stream/write-denied"
OWNERSHIP_TRANSFERRED = "stream/ownership-transferred"
READ_GRANTED = "stream/read-granted"
READ_REVOKED = "stream/read-revoked"

#: The capability to announce streams (seed 003) and the one to manage those of others (decision 1).
STREAM_MANAGE = "stream/manage"
SPACE_MANAGE_STREAMS = "space/manage-streams"
#: The capability to see the figures of the whole gateway, and what was refused in the space.
GATEWAY_OBSERVE = "gateway/observe"

#: Projections of the writer and reader sets (decision 2); never a source of rights.
WRITE_PROJECTION = "stream/write:"
READ_PROJECTION = "stream/read:"

#: From the gateway only (decision 21); ``system/*`` as a whole belongs here too.
RESERVED = frozenset(
    {
        STREAM_LISTED,
        STREAM_SYNCED,
        STREAM_SUBSCRIBED,
        STREAM_UNSUBSCRIBED,
        PARTICIPANT_LISTED,
        STREAM_OPEN,
        STREAM_READY,
        WRITE_GRANTED,
        WRITE_REVOKED,
        WRITE_DENIED,
        READ_GRANTED,
        READ_REVOKED,
        OWNERSHIP_TRANSFERRED,
        INVITE_ACK,
    }
)

#: Questions to the gateway: about the content of a welcome, and whether everything before is recorded. Every
#: participant may ask, and only it gets the answer.
QUESTIONS = frozenset({STREAM_LIST, PARTICIPANT_LIST, STREAM_SYNC})

#: What everyone may send, whatever its capabilities: answers to what others have asked or given.
ALWAYS_ALLOWED = frozenset({MCP_RESPONSE, CAPABILITY_GRANT_ACK})

#: What participants are told to do (spec 3.9).
INSTRUCTIONS = frozenset({PAUSE, RESUME, REQUEST_STATUS, FORGET, COMPACT, CLEAR, RESTART, SHUTDOWN})

#: What a paused participant may still send (spec 3.9.1): answers, acknowledgements, cancellations, status, resume,
#: and what it wants to receive.
WHILE_PAUSED = frozenset(
    {
        MCP_RESPONSE,
        CHAT_ACKNOWLEDGE,
        CAPABILITY_GRANT_ACK,
        COMPACT_DONE,
        "chat/cancel",
        "reasoning/cancel",
        MCP_WITHDRAW,
        STREAM_CLOSE,
        STREAM_SUBSCRIBE,
        STREAM_UNSUBSCRIBE,
        STATUS,
        RESUME,
    }
)

#: What a participant may still send after it was shut down, to acknowledge it (spec 3.9.10).
AFTER_SHUTDOWN = frozenset({CHAT_ACKNOWLEDGE, STATUS})
