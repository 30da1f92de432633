"""Known bugs of brokers, by the numbers that findings, cases and predictions name (spec 07, 7.12)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data


@dataclass(frozen=True)
class BrokerBug:
    """One bug. words: a few, for a reason; "" where no reason names it. codes: findings with it."""

    code: str
    versions: str
    trigger: str
    effect: str
    mends: str
    codes: tuple[str, ...]
    words: str = ""


@cache
def bugs() -> dict[str, BrokerBug]:
    """Every bug by its number, in order."""
    data = get_data(__package__, "bugs.toml")
    assert data is not None
    rows = tomllib.loads(data.decode("utf-8"))
    return {
        code: BrokerBug(code=code, **{**row, "codes": tuple(row["codes"])})
        for code, row in rows.items()
    }
