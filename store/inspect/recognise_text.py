"""Which file of `config/` a text is, told from its first bytes: a copy has lost its name."""

from __future__ import annotations

import re

from ...formats.kinds import KINDS, Syntax

_SHARED = "dataVersion"
_GROUP = re.compile(rb"[^\"]@[^\"]*\"\s*:")
_MEMBERS = {
    table.member: name
    for name, kind in reversed(KINDS.items())
    for table in kind.tables
    if kind.syntax is Syntax.JSON and table.member not in ("", _SHARED)
}
"""Member → the first kind that has it."""
_OFFSETS = "offsetTable"
_EPOCHS = re.compile(rb"\d+\r?\n\d+\r?\n\d+-\d+\r?(\n|\Z)")


def kind_of_text(head: bytes) -> str | None:
    """The kind whose table, or whose lines, the first bytes show; None where none does."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"{"):
        return "epoch-file" if _EPOCHS.match(head) else None
    found = [(text.find(f'"{member}"'.encode()), name) for member, name in _MEMBERS.items()]
    places = sorted((place, name) for place, name in found if place >= 0)
    if not places:
        return None
    names = {name for _, name in places}
    if "lmq-consumer-offset" in names:
        return "lmq-consumer-offset"
    if places[0][1] == _MEMBERS[_OFFSETS] and not _GROUP.search(text):
        return "delay-offset"  # its keys are levels, not topic@group
    return places[0][1]
