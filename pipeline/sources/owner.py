"""Whose a stage is: a write of a Spark session that still runs, or of one that is gone.

The writer's parts run in several processes, none of which stays, so that nobody can hold a lock.
What stays is their ancestor: the JVM of the driver.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...store.errors import InUse

if TYPE_CHECKING:
    from ..stage import Stage

_JVM = "java"
_PARENT, _STARTED = 1, 19
"""Fields of proc(5) `stat`, counted behind the name."""


def this_session() -> dict[str, Any]:
    """What names the driver's JVM: machine, process, when that was started."""
    pid = os.getppid()
    ancestor = pid
    while ancestor > 1 and _name(ancestor) != _JVM:
        ancestor = int((_stat(ancestor) or ["", "0"])[_PARENT])
    pid = ancestor if ancestor > 1 else pid
    return {"machine": _machine(), "process": pid, "started": _started(pid)}


def is_gone(session: dict[str, Any]) -> bool:
    """Whether that session has ended. One of another machine is taken for running."""
    if session.get("machine") != _machine():
        return False
    return bool(_started(int(session["process"])) != session["started"])


def require_gone(stage: Stage) -> None:
    """Raise InUse for a stage of a session that still runs. One without owner passes."""
    owner = stage.owner()
    if owner is not None and not is_gone(owner):
        raise InUse(
            "another job writes here",
            path=stage.target,
            hint=f"where none does, remove {stage.folder}",
        )


def _machine() -> str:
    """With its name space of processes: containers may share a name, not their processes."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """In ticks since the machine was started; None for no process."""
    found = _stat(pid)
    return found[_STARTED] if found else None


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
