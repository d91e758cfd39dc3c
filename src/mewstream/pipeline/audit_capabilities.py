"""What capabilities allow, in SQL: ``yes``, ``no``, or ``unknown`` where a pattern looks into a payload."""

from __future__ import annotations

LOOKUPS = {
    "started": ("started", "''", "''"),
    "roster": ("roster", "if(record = 'frame', NULL, sender)", "''"),
    "invited": ("invited", "if(record = 'frame', NULL, sender)", "''"),
    "grants": ("grant", "if(record = 'frame', NULL, sender)", "''"),
}
"""What must be looked up about the sender of a control record."""

_LIST = "array<string>"

#: The newest configuration has the last word on a name; then an invitation; and what was granted comes on top.
_CONFIGURED = f"""if(was.roster.number = was.started.seq, from_json(was.roster.body, '{_LIST}'), NULL)"""
_NEWEST_GRANTS = """filter(was.grants.all, each ->
    each.held AND NOT exists(was.grants.all, later -> later.other = each.other AND later.at > each.at))"""
HELD = f"""concat(
    coalesce({_CONFIGURED}, from_json(was.invited.body, '{_LIST}'), array()),
    coalesce(flatten(transform({_NEWEST_GRANTS}, each -> from_json(each.body, '{_LIST}'))), array()))"""
"""The patterns that the sender held, each as JSON."""

#: The brace is doubled, as in every text that is a part of a query.
_IS_OBJECT = "each LIKE '{{%'"
_KIND = f"if({_IS_OBJECT}, get_json_object(each, '$.kind'), each)"
PATTERNS = rf"""transform({HELD}, each -> named_struct(
    'denies', {_KIND} LIKE '!%',
    'kind', replace(replace(replace(replace(ltrim('!', {_KIND}), '\\', '\\\\'), '%', '\\%'), '_', '\\_'), '*', '%'),
    'looks', {_IS_OBJECT} AND get_json_object(each, '$.payload') IS NOT NULL))"""
"""The same with ``kind`` as a pattern of LIKE, and whether it ``looks`` into the payload. Asked as ``patterns``."""


def allows(kind: str) -> str:
    """Whether ``patterns`` allow a kind (SQL). A denial wins over every permission; where the log does not go back to
    the beginning, a grant that is not in it may exist."""
    return f"""CASE
        WHEN length({kind}) > 1024 THEN 'unknown'
        ELSE element_at(transform(array(filter(patterns, each -> {kind} LIKE each.kind)), relevant -> CASE
            WHEN NOT exists(relevant, each -> NOT each.denies) THEN if(is_whole, 'no', 'unknown')
            WHEN exists(relevant, each -> each.denies AND NOT each.looks) THEN 'no'
            WHEN exists(relevant, each -> each.denies) THEN 'unknown'
            WHEN exists(relevant, each -> NOT each.denies AND NOT each.looks) THEN 'yes'
            ELSE 'unknown' END), 1) END"""


def denies(kind: str) -> str:
    """Whether ``patterns`` deny a kind (SQL), for what is allowed by another capability than its own name."""
    relevant = f"each -> each.denies AND {kind} LIKE each.kind"
    return f"""CASE
        WHEN exists(patterns, {relevant} AND NOT each.looks) THEN 'yes'
        WHEN exists(patterns, {relevant}) THEN 'unknown'
        ELSE 'no' END"""
