"""``mewstream streams``, ``grant``, ``revoke``, ``transfer`` and ``close``: list streams and change rights on them."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.name_suggestions import suggest_participants, suggest_streams
from mewstream.cli.output import complain, print_json, print_table, printable, quietly
from mewstream.cli.runner import run
from mewstream.cli.values import time_span
from mewstream.client.errors import ConnectError
from mewstream.protocol import kinds
from mewstream.protocol.errors import PeerError, StreamNotFound
from mewstream.protocol.times import SECOND, parse_rfc3339, rfc3339

stream_argument = click.argument("stream", shell_complete=suggest_streams)
participant_argument = click.argument("participant_id", metavar="PARTICIPANT", shell_complete=suggest_participants)
reason_option = click.option("--reason", help="Why; everyone is told.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer as JSON.")


@click.command("streams")
@click.option("--json", "as_json", is_flag=True, help="A JSON list with the full description of each stream.")
@participant_options
@quietly
def list_streams(identity: Identity, as_json: bool) -> None:
    """List the open streams.

    \b
    Examples:
      mewstream streams --as alice
      mewstream streams --as alice --json | jq -r '.[].stream_id'
    """
    from mewstream.cli import http_api

    found = run(http_api.streams(identity))
    if as_json:
        print_json(found)
    else:
        print_streams(found)


def print_streams(found: list[dict[str, Any]]) -> None:
    print_table(
        "Streams",
        ["stream", "alias", "owner", "writers", "readers", "status", "description"],
        [
            [
                *(each.get("stream_id"), each.get("alias"), _owner(each), _names(each.get("authorized_writers"))),
                *(_names(each.get("authorized_readers"), none="everyone"), each.get("status")),
                each.get("description"),
            ]
            for each in found
        ],
    )


def _owner(stream: dict[str, Any]) -> str:
    return f"{stream.get('owner')}{'' if stream.get('owner_connected', True) else ' (away)'}"


def _names(ids: Any, *, none: str = "") -> str:
    return ", ".join(map(str, ids)) if isinstance(ids, list) else none


def _on_disconnect(context: click.Context, parameter: click.Parameter, value: str | None) -> str | float | None:
    return value if value in ("revoke", "keep") else time_span()(context, parameter, value)


@click.command()
@stream_argument
@participant_argument
@reason_option
@click.option("--expires-in", metavar="TIME", callback=time_span(), help="When the right ends: 30 (seconds), 15m, 7d.")
@click.option("--max-frames", type=click.IntRange(1), help="The number of frames after which the right ends.")
@click.option(
    "--replaces", metavar="WRITER", help="Who loses the right at the same moment, so that nobody writes beside."
)
@click.option(
    "--on-disconnect",
    metavar="WHAT",
    callback=_on_disconnect,
    help="What becomes of the right when the connection is lost: revoke, keep, or a time such as 30s.",
)
@click.option("--when-absent", is_flag=True, help="If PARTICIPANT is not connected, grant it when it joins.")
@click.option("--delegate", metavar="DEPTH", type=click.IntRange(1), help="The right may be passed on, so often.")
@click.option("--max-writers", type=click.IntRange(1), help="With --delegate: the number of writers below, in all.")
@click.option("--read", is_flag=True, help="Grant the right to read instead, for a stream with a set of readers.")
@json_option
@participant_options
@quietly
def grant(
    identity: Identity,
    stream: str,
    participant_id: str,
    reason: str | None,
    expires_in: float | None,
    max_frames: int | None,
    replaces: str | None,
    on_disconnect: str | float | None,
    when_absent: bool,
    delegate: int | None,
    max_writers: int | None,
    read: bool,
    as_json: bool,
) -> None:
    """Let PARTICIPANT write to STREAM (an id or an alias). It must be connected, unless --when-absent is given.

    \b
    Examples:
      mewstream grant --as server stream-1 player1 --reason 'took the wheel'
      mewstream grant --as server movement player1 --expires-in 5m --max-frames 1000
      mewstream grant --as server movement ai --replaces player1
      mewstream grant --as server movement player2 --when-absent --on-disconnect 1m
      mewstream grant --as server movement captain --delegate 1 --max-writers 4
      mewstream grant --as server stream-1 viewer --read
    """
    conditions: dict[str, Any] = {}
    if expires_in is not None:
        conditions["expires_at"] = rfc3339(time.time_ns() // 1000 + int(expires_in * SECOND))
    if max_frames is not None:
        conditions["max_frames"] = max_frames
    if read and (conditions or replaces or delegate or on_disconnect is not None or when_absent):
        given = "--expires-in, --max-frames, --replaces, --delegate, --on-disconnect and --when-absent"
        raise click.UsageError(f"{given} are for the right to write, not for --read")
    if max_writers is not None and delegate is None:
        raise click.UsageError("--max-writers bounds what a delegate grants: give --delegate too")
    kind = kinds.GRANT_READ if read else kinds.GRANT_WRITE
    _change(
        identity,
        kind,
        as_json,
        stream_id=stream,
        participant_id=participant_id,
        reason=reason,
        conditions=conditions or None,
        replaces=replaces,
        on_disconnect=on_disconnect,
        when_absent=when_absent or None,
        delegate=None if delegate is None else {"depth": delegate, "max_writers": max_writers},
    )


@click.command()
@stream_argument
@participant_argument
@reason_option
@click.option("--read", is_flag=True, help="Revoke the right to read instead.")
@json_option
@participant_options
@quietly
def revoke(identity: Identity, stream: str, participant_id: str, reason: str | None, read: bool, as_json: bool) -> None:
    """Revoke the right of PARTICIPANT to write to STREAM (an id or an alias).

    \b
    Examples:
      mewstream revoke --as server stream-1 player1
      mewstream revoke --as server stream-1 viewer --read --reason 'the round is over'
    """
    kind = kinds.REVOKE_READ if read else kinds.REVOKE_WRITE
    _change(identity, kind, as_json, stream_id=stream, participant_id=participant_id, reason=reason)


@click.command()
@stream_argument
@participant_argument
@reason_option
@click.option("--retain-write", is_flag=True, help="The previous owner keeps the right to write.")
@json_option
@participant_options
@quietly
def transfer(
    identity: Identity, stream: str, participant_id: str, reason: str | None, retain_write: bool, as_json: bool
) -> None:
    """Make PARTICIPANT, who must be connected, the owner of STREAM (an id or an alias).

    The previous owner loses the right to write, unless --retain-write keeps it. Only a connected participant can
    keep it; if that fails, the command says so, with exit code 1.

    \b
    Examples:
      mewstream transfer --as server stream-1 player1 --reason 'it is yours'
      mewstream transfer --as server stream-1 player1 --retain-write
    """
    answer = _change(
        identity,
        kinds.TRANSFER_OWNERSHIP,
        as_json,
        stream_id=stream,
        new_owner=participant_id,
        reason=reason,
        retain_write=retain_write or None,
    )
    previous, writers = answer.get("previous_owner"), answer.get("authorized_writers")
    if retain_write and isinstance(previous, str) and isinstance(writers, list) and previous not in writers:
        complain(
            f"{printable(previous)} has not kept the right to write: it is not connected. "
            f"{printable(participant_id)} can grant it"
        )
        sys.exit(1)


@click.command()
@click.argument("stream", required=False, shell_complete=suggest_streams)
@click.option("--mine", is_flag=True, help="Close all streams that you own.")
@click.option(
    "--idle",
    metavar="TIME",
    callback=time_span(),
    help="Close the streams without a frame or a change for this long: 30 (seconds), 15m, 1h.",
)
@reason_option
@json_option
@participant_options
@quietly
def close(
    identity: Identity, stream: str | None, mine: bool, idle: float | None, reason: str | None, as_json: bool
) -> None:
    """Close STREAM (an id or an alias), for everyone; or several streams, with --mine, --idle or both.

    --idle alone closes the streams of others too, which takes the capability space/manage-streams. If the gateway
    refuses to close one of several streams, the others are closed, and the exit code is 1.

    \b
    Examples:
      mewstream close --as server stream-1
      mewstream close --as server movement --reason 'the game is over'
      mewstream close --as server --mine
      mewstream close --as admin --idle 1h --reason 'nobody used it'
    """
    if (stream is not None) == (mine or idle is not None):
        raise click.UsageError("say which: STREAM, or all with --mine or --idle")
    if stream is not None:
        _change(identity, kinds.STREAM_CLOSE, as_json, stream_id=stream, reason=reason)
        return
    from mewstream.cli import http_api

    found = run(http_api.streams(identity, activity=idle is not None))
    now = time.time_ns() // 1000
    refused = False
    for each in found:
        if (mine and each.get("owner") != identity.id) or (idle is not None and not _is_idle(each, now, idle)):
            continue
        try:
            _change(identity, kinds.STREAM_CLOSE, as_json, stream_id=each["stream_id"], reason=reason)
        except StreamNotFound:
            continue  # it has ended in the meantime
        except PeerError as error:
            complain(f"{printable(each['stream_id'])}: {printable(str(error))}")
            refused = True
    if refused:
        sys.exit(1)


def _is_idle(stream: dict[str, Any], now: int, seconds: float) -> bool:
    since = parse_rfc3339(str(stream.get("last_active")))
    if since is None:
        raise ConnectError("the gateway does not say when streams were last active: --idle needs a newer one")
    return now - since >= seconds * SECOND


def _change(identity: Identity, kind: str, as_json: bool, **fields: Any) -> dict[str, Any]:
    """Send a message, print the result, and return the gateway's answer."""
    from mewstream.cli import http_api

    payload = {key: value for key, value in fields.items() if value is not None}
    answer = run(http_api.post(identity, kind, payload))
    if as_json:
        print_json(answer)
        return answer
    status = "closed" if kind == kinds.STREAM_CLOSE else answer.get("status")
    said = f"{answer.get('stream_id', fields['stream_id'])}: {'pending' if answer.get('pending') else status}"
    if "new_owner" in answer:
        said += f", owner: {answer['new_owner']}"
    for rights in ("writers", "readers"):
        if isinstance(answer.get(f"authorized_{rights}"), list):
            said += f", {rights}: {_names(answer[f'authorized_{rights}']) or 'nobody'}"
    click.echo(printable(said))
    return answer
