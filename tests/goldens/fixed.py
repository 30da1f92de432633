"""A process in which nothing depends on the clock, on chance, on its id or on the machine.

`fix()` comes before mqstore is imported: modules may keep what they import. It is for a process that
makes goldens and for no other.
"""

from __future__ import annotations

import datetime
import os
import random
import time
from typing import Any

NOW_S = 1_795_348_800
"""2026-11-22T12:00Z: behind every store, before the wheel of a timer has gone round: what it lets fire is not late."""
_PID = 4242
BEGAN_S = time.time()
"""When this process began: what is older was there before."""

_RealDatetime = datetime.datetime


class _Meta(type):
    """A datetime made before the clock stood still is one still."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _RealDatetime)


class _FixedDatetime(_RealDatetime, metaclass=_Meta):
    """`datetime` whose clock stands still."""

    __slots__ = ()

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """Always the same moment."""
        return _RealDatetime.fromtimestamp(NOW_S, tz)


def fix() -> None:
    """Hold the clock, the process id and chance still; UTC; no waiting for the disk."""
    os.environ.update({"TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "100", "TERM": "dumb"})
    time.tzset()
    chance = random.Random(0)
    replaced: dict[Any, dict[str, Any]] = {
        time: {"time": lambda: float(NOW_S), "time_ns": lambda: NOW_S * 10**9},
        datetime: {"datetime": _FixedDatetime},
        os: {"getpid": lambda: _PID, "urandom": chance.randbytes, "fsync": lambda _: None, "fdatasync": lambda _: None},
    }
    for module, names in replaced.items():
        for name, value in names.items():
            setattr(module, name, value)
