"""Reading brokerIdentity as a broker's BrokerMetadata does (spec 06, 6.3). Nothing here raises."""

from __future__ import annotations

import re
from typing import Any

from ...formats.broker_identity import FIELDS, IDENTITY, SEPARATOR
from ..counted import counted
from .parse import Parsed

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_LONG_MOST = (1 << 63) - 1


def parse(data: bytes) -> Parsed:
    """The table of `formats.broker_identity` by its member."""
    # as Java splits: empty parts at the end are none
    parts = data.decode("utf-8", "surrogateescape").rstrip(SEPARATOR).split(SEPARATOR)
    found: dict[str, Any] = {}
    value = {IDENTITY: found}
    if not data:
        return Parsed(value, "empty")
    at = 0
    for field, part in zip(FIELDS, parts, strict=False):
        name = field.column.replace("_", " ")
        if not part:
            return Parsed(value, f"the {name} is empty", at)
        if field.type == "integer" and not _is_number(part):
            return Parsed(value, f"the {name} is not a number", at)
        found[field.name] = int(part) if field.type == "integer" else part
        at += len(part.encode("utf-8", "surrogateescape")) + len(SEPARATOR)
    if len(parts) < len(FIELDS) - 1:
        reason = f"{counted(len(parts), 'part')}, not the {len(FIELDS) - 1} of an identity"
        return Parsed(value, reason, len(data))
    return Parsed(value)


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and -_LONG_MOST - 1 <= int(text) <= _LONG_MOST
