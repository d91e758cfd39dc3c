"""Tab completion in the terminal, made from the table of commands."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from mewstream.cli.output import printable
from mewstream.cli.terminal.arguments import last_word, quoted
from mewstream.cli.terminal.commands import COMMANDS
from mewstream.cli.terminal.session import Session


class LineCompleter(Completer):
    """Completes command names, their arguments and, in chat messages, the names of participants."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/"):
            typed = text.split(" ")[-1]
            # A name at the start of a line addresses that participant.
            ending = ": " if typed == text else " "
            return _completions(typed, self._session.people() if typed else (), ending)
        name, blank, rest = text[1:].partition(" ")
        if not blank:
            return _completions(name, COMMANDS, " ")
        command = COMMANDS.get(name)
        before, typed = last_word(rest)
        if command is None or len(before) >= len(command.arguments):
            return ()
        argument = command.arguments[len(before)]
        return _completions(typed, argument.candidates(self._session, before), " ")


def _completions(typed: str, candidates: Iterable[str], ending: str) -> Iterable[Completion]:
    prefix = typed.lstrip("\"'")
    for each in sorted(set(candidates)):
        if each.startswith(prefix) and each.isprintable():
            yield Completion(quoted(each) + ending, start_position=-len(typed), display=printable(each))
