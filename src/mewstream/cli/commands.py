"""The table of commands. A command is imported only when it is used, so that the program starts quickly.

To add a command, write its module and add one line to ``COMMANDS``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    target: str
    """``module:attribute`` of the click command. The module is below ``mewstream.cli``, or has its full name."""
    summary: str
    """The summary for ``mewstream --help``, which does not import the command."""


#: Heading -> name -> entry, in the order of ``mewstream --help``.
COMMANDS: dict[str, dict[str, Entry]] = {
    "The gateway": {
        "init": Entry("init:init", "Write a space.yaml with new tokens."),
        "serve": Entry("serve:serve", "Run the gateway until it is stopped."),
        "status": Entry("status:status", "Show the state of the gateway, its participants and streams."),
        "bench": Entry("bench:bench", "Measure a gateway, ours or another, and check all it delivers."),
        "doctor": Entry("doctor:doctor", "Find out what is missing on this machine, and how to get it."),
    },
    "In a space": {
        "join": Entry("join:join", "Take part in a space from this terminal: chat, watch, grant, approve."),
        "send": Entry("send:send", "Send a message: chat, or any kind."),
        "publish": Entry("publish:publish", "Send a file or stdin into a stream."),
        "tail": Entry("tail:tail", "Print the frames of a stream, or everything, as it happens."),
    },
    "Streams and people": {
        "streams": Entry("streams:list_streams", "List the open streams."),
        "grant": Entry("streams:grant", "Let somebody write to a stream, or read it."),
        "revoke": Entry("streams:revoke", "Revoke the right to write or read."),
        "transfer": Entry("streams:transfer", "Make somebody else the owner of a stream."),
        "close": Entry("streams:close", "Close a stream."),
        "invite": Entry("membership:invite", "Invite a new participant, and get its token."),
        "uninvite": Entry("membership:uninvite", "Take an invitation back."),
        "kick": Entry("membership:kick", "Remove a participant from the space."),
        "ban": Entry("membership:ban", "Remove a participant, and do not let it in for a while."),
        "unban": Entry("membership:unban", "End a ban before its time."),
        "token": Entry("token:token", "Create tokens."),
    },
    "The record": {
        "replay": Entry("replay:replay", "Play a recorded stream into a live space."),
        "journal": Entry("journal:journal", "Look at the journal, check it, export it, keep it small."),
        "backup": Entry("backup:backup", "Copy the journal, also while the gateway runs."),
        "restore": Entry("backup:restore", "Put a backup in the place of a data directory."),
        "state": Entry("state:state", "Tell who was here and who could write, at any point of the log."),
        "pipeline": Entry("pipeline:pipeline", "Make tables of the journal, with Spark."),
        "query": Entry("query:query", "Ask the tables something, in SQL."),
        "audit": Entry("audit:audit", "Tell whether everything that happened was allowed."),
        "report": Entry("report:report", "Write a page with pictures of what happened."),
        "warehouse": Entry("warehouse:warehouse", "Make the tables known to other engines."),
        "erase": Entry("erase:erase", "Erase a space from the journal and from the tables."),
        "demo": Entry("mewstream.demo.__main__:demo", "Play a session, and show what the pipeline makes of it."),
    },
    "The shell": {
        "completion": Entry("completion:completion", "Set up completion in your shell."),
    },
}


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, each imported when it is looked up."""

    def __init__(self, table: dict[str, dict[str, Entry]]) -> None:
        self._entries = {name: entry for section in table.values() for name, entry in section.items()}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, _, attribute = self._entries[name].target.partition(":")
            full_name = module if module.startswith("mewstream.") else f"mewstream.cli.{module}"
            command = getattr(importlib.import_module(full_name), attribute)
            assert isinstance(command, click.Command)
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        self._loaded.pop(name, None)
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._entries, *self._loaded]))

    def __len__(self) -> int:
        return len(list(iter(self)))


class LazyGroup(click.Group):
    """A group whose help and completion import no command."""

    def __init__(self, name: str | None = None, *, table: dict[str, dict[str, Entry]], **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]  # click's own settings, passed on unchanged
        self.commands = LazyCommands(table)
        self._table = table

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, entries in self._table.items():
            with formatter.section(heading):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=entry.summary)
            for entries in self._table.values()
            for name, entry in entries.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
