"""Checking payloads against the JSON Schema of their format, in the workers: the only Python that sees single frames.

A compiled schema is kept by its hash, so that a worker compiles each once. What makes a stranger's
schema safe to run is in :mod:`mewstream.protocol.schemas`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from mewstream.protocol import kinds
from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.frames import TEXT
from mewstream.protocol.schemas import (
    MAX_PROBLEMS,
    MAX_TEXT,
    MAX_WORK,
    BoundedSchema,
    Extent,
    compile_schema,
    measure,
)
from mewstream.protocol.utf8 import is_utf8

#: Nobody waits for a worker as others wait for a gateway: larger payloads can be checked here.
_MOST_WORK = 10 * MAX_WORK

REASONS = pa.list_(pa.struct([("rule", pa.string()), ("path", pa.string()), ("message", pa.string())]))


class Reason(NamedTuple):
    rule: str
    path: str
    message: str


class _Payload(msgspec.Struct):
    content: Any


class _Envelope(msgspec.Struct):
    payload: _Payload


_decode = msgspec.json.Decoder().decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def reasons_by(schemas: Mapping[str, str]) -> Callable[..., Column]:
    """A function of the columns ``schema_hash``, ``lines``, ``kind``, ``opcode`` and ``data``: the reasons, null where
    nothing is wrong. ``schemas`` are JSON texts by their hash."""

    def check(schema_hash: pa.Array, lines: pa.Array, kind: pa.Array, opcode: pa.Array, data: pa.Array) -> pa.Array:
        rows = zip(*(each.to_pylist() for each in (schema_hash, lines, kind, opcode, data)), strict=True)
        found = [
            problems(_compiled(hash, schemas[hash]), payload, lines=has_lines, kind=of_kind, opcode=code)
            for hash, has_lines, of_kind, code, payload in rows
        ]
        return pa.array([[each._asdict() for each in these] if these else None for these in found], REASONS)

    return arrow_udf(check, from_arrow_type(REASONS))  # type: ignore[call-overload, no-any-return]


@functools.lru_cache(maxsize=1024)
def _compiled(hash: str, schema: str) -> BoundedSchema | str:
    """Ready to run; or why not, where the log holds a schema that this version finds unsafe."""
    try:
        return compile_schema(_decode(schema))
    except (ValidationFailed, msgspec.MsgspecError) as flaw:
        return str(flaw)


def problems(schema: BoundedSchema | str, data: bytes | None, *, lines: bool, kind: str, opcode: int) -> list[Reason]:
    """What is wrong with a payload, at most ``MAX_PROBLEMS`` reasons, none of which quotes it. Never raises."""
    if isinstance(schema, str):
        return [Reason("schema", "", schema)]
    data = data or b""
    if kind == kinds.STREAM_DATA:
        try:
            value = _decode_envelope(data).payload.content
        except (msgspec.MsgspecError, ValueError, RecursionError) as flaw:
            return [Reason("json", "", f"not a stream/data envelope: {flaw}")]
        return _check(schema, value, measure(value))
    if not lines:
        return _check_text(schema, data, opcode)
    found: list[Reason] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            here = _check_text(schema, line, opcode)
            found += [each._replace(path=f"line {number}{each.path}") for each in here]
            if len(found) >= MAX_PROBLEMS:
                break
    return found[:MAX_PROBLEMS]


def _check_text(schema: BoundedSchema, data: bytes, opcode: int) -> list[Reason]:
    try:
        value = _decode(data)
    except UnicodeDecodeError as flaw:
        return [Reason("utf8", "", f"not UTF-8: {flaw.reason} at byte {flaw.start}")]
    except (msgspec.MsgspecError, ValueError, RecursionError) as flaw:
        return [Reason("utf8" if opcode == TEXT and not is_utf8(data) else "json", "", f"not valid JSON: {flaw}")]
    return _check(schema, value, schema.extent(data, value))


def _check(schema: BoundedSchema, value: Any, extent: Extent) -> list[Reason]:
    unchecked = schema.why_unchecked(extent, _MOST_WORK)
    if unchecked is not None:
        return [Reason("size", "", unchecked)]
    try:
        if schema.validator.is_valid(value):
            return []
        if not schema.has_few_errors(extent):
            return [Reason("schema", "", "does not match its schema (too large or too deep to say where)")]
        return [
            Reason(error.kind.name, _pointer(error.instance_path), error.message[:MAX_TEXT])
            for error in islice(schema.validator.iter_errors(value), MAX_PROBLEMS)
        ]
    except Exception as flaw:  # what JSON cannot hold, such as lone surrogates
        return [Reason("json", "", f"cannot be checked: {flaw}"[:MAX_TEXT])]


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)[:MAX_TEXT]
