"""The table of slash commands, from which help and completion are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from mewstream.cli.terminal.arguments import Argument, InvalidInput, values
from mewstream.cli.terminal.details import detail_lines, people_lines, stream_lines, tool_lines
from mewstream.cli.terminal.event_formatter import stamped
from mewstream.cli.terminal.lines import Line, as_json, short
from mewstream.cli.terminal.session import Session
from mewstream.client.errors import McpError
from mewstream.client.mcp import METHOD_NOT_FOUND

Run = Callable[..., Awaitable[None]]
_RESULT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    arguments: tuple[Argument, ...]
    help: str
    run: Run
    """Called with the session and the value of each argument."""
    asks_others: bool = False
    """Whether it waits for another participant, who may take long."""

    @property
    def usage(self) -> str:
        return " ".join([f"/{self.name}", *map(str, self.arguments)])


class ParsedLine(NamedTuple):
    """A command and the values of its arguments."""

    command: Command
    values: list[str | None]


def parse_line(line: str) -> ParsedLine:
    """Parse a typed line. A line without a slash, or with two, is a chat message. Raises InvalidInput."""
    if not line.startswith("/"):
        return ParsedLine(_SAY, [line])
    if line.startswith("//"):
        return ParsedLine(_SAY, [line[1:]])
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"/{name} is no command: /help lists them; //{name} says it")
    return ParsedLine(command, values(command.arguments, rest, command.usage))


# -- saying and looking -----------------------------------------------------------------------------


async def _say(session: Session, text: str) -> None:
    await session.space.chat(text)


async def _help(session: Session, name: str | None) -> None:
    wanted = list(COMMANDS.values())
    if name is not None:
        found = COMMANDS.get(name.removeprefix("/"))
        if found is None:
            raise InvalidInput(f"{name} is no command: /help lists them")
        wanted = [found]
    width = max(len(each.usage) for each in wanted)
    session.show(*([("head", each.usage.ljust(width)), ("plain", f"  {each.help}")] for each in wanted))
    if name is None:
        session.show(
            [("dim", "Anything else is said to everyone. Tab completes, Ctrl-C clears the line, Ctrl-D leaves.")]
        )


async def _who(session: Session) -> None:
    session.show(*people_lines(session.space))


async def _streams(session: Session) -> None:
    session.show(*stream_lines(session.space, session.watched))


async def _stream(session: Session, stream: str) -> None:
    session.show(*detail_lines(session.stream(stream)))


async def _watch(session: Session, stream: str) -> None:
    session.watch(stream)
    if stream in session.space.streams:
        session.show(_note(f"watching {stream}"))
    else:
        session.show(_note(f"{stream} is not open: it is shown when somebody opens it"))


async def _unwatch(session: Session, stream: str) -> None:
    session.unwatch(stream)


async def _quit(session: Session) -> None:
    session.leaving.set()


# -- streams ----------------------------------------------------------------------------------------


async def _open(session: Session, description: str) -> None:
    await session.space.open_stream(description=description)


async def _announce(session: Session, alias: str, description: str | None) -> None:
    await session.space.announce(name=alias, description=description)


async def _start(session: Session, stream: str) -> None:
    await session.stream(stream).start()


async def _complete(session: Session, stream: str) -> None:
    await session.stream(stream).complete()


async def _close(session: Session, stream: str, reason: str | None) -> None:
    await session.stream(stream).close(reason=reason)


async def _write(session: Session, stream: str, text: str) -> None:
    found = session.stream(stream)
    data: Any = text
    if found.is_announced:
        # The content is JSON; text that is not JSON is sent as a string.
        try:
            data = msgspec.json.decode(text)
        except msgspec.DecodeError:
            pass
    await found.send(data)
    await found.flush()
    if found.id not in session.watched:  # otherwise the frame itself is shown
        session.show(_note(f"{found.id} has it"))


async def _grant(session: Session, stream: str, who: str, reason: str | None) -> None:
    await session.stream(stream).grant(who, reason=reason)


async def _delegate(session: Session, stream: str, who: str, depth: str | None) -> None:
    if depth is not None and not (depth.isdecimal() and int(depth) > 0):
        raise InvalidInput(f"DEPTH is how often the right may be passed on, such as 1, not {depth}")
    await session.stream(stream).grant(who, delegate=int(depth or 1))


async def _revoke(session: Session, stream: str, who: str, reason: str | None) -> None:
    await session.stream(stream).revoke(who, reason=reason)


async def _hand_over(session: Session, stream: str, who: str, reason: str | None) -> None:
    try:
        await session.stream(stream).hand_over(who, reason=reason)
    except ValueError as ambiguous:
        raise InvalidInput(f"{ambiguous}; or /revoke the others first") from None


async def _ask(session: Session, stream: str, reason: str | None) -> None:
    await session.stream(stream).ask(reason=reason)


async def _deny(session: Session, stream: str, who: str, reason: str | None) -> None:
    await session.stream(stream).deny(who, reason=reason)


async def _transfer(session: Session, stream: str, who: str, reason: str | None) -> None:
    await session.stream(stream).transfer(who, reason=reason)


# -- people -----------------------------------------------------------------------------------------


async def _kick(session: Session, who: str, reason: str | None) -> None:
    await session.space.kick(who, reason=reason)


async def _invite(session: Session, who: str) -> None:
    invitation = await session.space.invite(who)
    session.show(
        stamped(("good", f"{invitation.participant} is invited. The token, which is shown only here: ")),
        [("plain", invitation.token)],
    )


async def _tools(session: Session, who: str) -> None:
    try:
        found = await session.space.list_tools(who)
    except McpError as failure:
        if failure.code != METHOD_NOT_FOUND:
            raise
        found = []
    session.tools[who] = [str(each.get("name", "")) for each in found]
    session.show(*tool_lines(who, found))


async def _call(session: Session, who: str, tool: str, arguments: str | None) -> None:
    given: Any = {}
    if arguments is not None:
        try:
            given = msgspec.json.decode(arguments)
        except msgspec.DecodeError as flaw:
            raise InvalidInput(f'the arguments are no JSON: {flaw}; expected for instance {{"x": 1}}') from None
        if not isinstance(given, dict):
            raise InvalidInput(f'the arguments of a tool are a JSON object, for instance {{"x": 1}}, not {arguments}')
    session.show(*_result(await session.space.call_tool(tool, given, to=who), of=who))


# -- proposals --------------------------------------------------------------------------------------


async def _proposals(session: Session) -> None:
    for number, proposal in session.proposals.open.items():
        line = session.formatter.line(proposal, number=number)
        if line is not None:
            session.show(line)
    if not session.proposals.open:
        session.show(_note("no proposal is open"))


async def _approve(session: Session, number: str, who: str | None) -> None:
    proposal = session.proposals[number]
    if who is None and not proposal.to:
        raise InvalidInput(f"the proposal does not say who shall do it: /approve {number} WHO")
    session.show(*_result(await session.space.fulfil(proposal, to=who), of=who or ", ".join(proposal.to)))


async def _reject(session: Session, number: str, reason: str | None) -> None:
    await session.space.reject(session.proposals[number], reason=reason)


# -- what commands have in common ---------------------------------------------------------------------


def _note(text: str) -> Line:
    return stamped(("dim", text))


def _result(result: Any, *, of: str) -> list[Line]:
    """Return the answer of a tool: its texts, or the JSON if it has other content."""
    content = result.get("content") if isinstance(result, dict) else None
    texts: list[str] = []
    if isinstance(content, list) and all(isinstance(each, dict) and each.get("type") == "text" for each in content):
        texts = [str(each.get("text", "")) for each in content]
    failed = isinstance(result, dict) and result.get("isError") is True
    shown = "\n".join(texts) if texts else as_json(result)
    head = stamped(("bad", f"error of {of}: ") if failed else ("good", f"result of {of}: "))
    first, *more = short(shown, _RESULT_CHARACTERS).splitlines() or [""]
    return [[*head, ("plain", first)], *([("plain", line)] for line in more)]


def _of_streams(session: Session, before: list[str]) -> Iterable[str]:
    return session.stream_names()


def _of_watched(session: Session, before: list[str]) -> Iterable[str]:
    return session.watched


def _of_people(session: Session, before: list[str]) -> Iterable[str]:
    return session.people()


def _of_asking(session: Session, before: list[str]) -> Iterable[str]:
    stream = session.space.streams.get(before[0])
    return stream.write_requests if stream is not None else ()


def _of_tools(session: Session, before: list[str]) -> Iterable[str]:
    return session.tools.get(before[0], ())


def _of_proposals(session: Session, before: list[str]) -> Iterable[str]:
    return map(str, session.proposals.open)


def _of_commands(session: Session, before: list[str]) -> Iterable[str]:
    return COMMANDS


_STREAM = Argument("STREAM", _of_streams)
_WHO = Argument("WHO", _of_people)
_ASKING = Argument("WHO", _of_asking)
_REASON = Argument("REASON", optional=True, is_rest=True)
_NUMBER = Argument("N", _of_proposals)

_SAY = Command("say", (Argument("TEXT", is_rest=True),), "Say something to everyone.", _say)

_TABLE = (
    Command("who", (), "List the participants and their capabilities.", _who),
    Command("streams", (), "List the open streams.", _streams),
    Command("stream", (_STREAM,), "Show a stream: writers, readers, conditions.", _stream),
    Command("open", (Argument("DESCRIPTION", is_rest=True),), "Open a stream that is live at once.", _open),
    Command(
        "announce",
        (Argument("ALIAS"), Argument("DESCRIPTION", optional=True, is_rest=True)),
        "Announce a stream, to be started later.",
        _announce,
    ),
    Command("start", (_STREAM,), "Start an announced stream.", _start),
    Command(
        "write",
        (_STREAM, Argument("TEXT", is_rest=True)),
        "Write a frame; for an announced stream, TEXT may be JSON.",
        _write,
    ),
    Command("watch", (_STREAM,), "Show the frames of a stream as they arrive.", _watch),
    Command("unwatch", (Argument("STREAM", _of_watched),), "Stop showing them.", _unwatch),
    Command("grant", (_STREAM, _WHO, _REASON), "Let somebody write to a stream of yours.", _grant),
    Command(
        "delegate",
        (_STREAM, _WHO, Argument("DEPTH", optional=True)),
        "Let somebody write, and let others write in turn.",
        _delegate,
    ),
    Command("revoke", (_STREAM, _WHO, _REASON), "Revoke that right.", _revoke),
    Command("hand-over", (_STREAM, _WHO, _REASON), "Let somebody write in the place of who does now.", _hand_over),
    Command("ask", (_STREAM, _REASON), "Ask for the right to write.", _ask),
    Command("deny", (_STREAM, _ASKING, _REASON), "Say no to somebody who asks for it.", _deny),
    Command("transfer", (_STREAM, _WHO, _REASON), "Make somebody else the owner of a stream of yours.", _transfer),
    Command("complete", (_STREAM,), "End a stream normally.", _complete),
    Command("close", (_STREAM, _REASON), "Close a stream.", _close),
    Command("invite", (Argument("WHO"),), "Invite a new participant; shows the token once.", _invite),
    Command("kick", (_WHO, _REASON), "Remove a participant.", _kick),
    Command("proposals", (), "List the open proposals.", _proposals),
    Command(
        "approve",
        (_NUMBER, Argument("WHO", _of_people, optional=True)),
        "Fulfil a proposal: send its request in your name.",
        _approve,
        asks_others=True,
    ),
    Command("reject", (_NUMBER, _REASON), "Reject a proposal.", _reject),
    Command("tools", (_WHO,), "List the tools of a participant.", _tools, asks_others=True),
    Command(
        "call",
        (_WHO, Argument("TOOL", _of_tools), Argument("JSON", optional=True, is_rest=True)),
        "Call a tool.",
        _call,
        asks_others=True,
    ),
    Command("help", (Argument("COMMAND", _of_commands, optional=True),), "Show this list.", _help),
    Command("quit", (), "Leave.", _quit),
)

COMMANDS = {command.name: command for command in _TABLE}
