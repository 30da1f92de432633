"""The command that shows more of a verdict, or mends what it found, ready to be pasted."""

from __future__ import annotations

import os

from ..disk.layout import Layout
from ..findings.next_commands import Given, command
from .answer import Fate, Judgement, Trace, Verdict
from .family import Place
from .groups import FILTERS, TOPICS

_VIEWS = {
    Verdict.TRANSACTION: "--transactions",
    Verdict.NEVER_FIRES: "--timers",
    Verdict.INVISIBLE: "--pop",
    Verdict.RETRY: "--retries",
}
_HARMFUL = (Fate.CUT_OFF, Fate.NO_START)


def command_for(
    judgement: Judgement, place: Place, layout: Layout, given: Given, group: str = ""
) -> str:
    """What to run next about one verdict, "" where there is nothing to look at or to mend."""
    verdict, root = judgement.verdict, layout.root
    if verdict in _VIEWS:
        return str(command("inspect", root, _VIEWS[verdict], given=given))
    if verdict is Verdict.NOT_DUE:
        timed = any("timer" in one.fact for one in judgement.evidence)
        return str(command("inspect", root, "--timers" if timed else "--delays", given=given))
    if verdict is Verdict.NOT_DISPATCHED and not os.path.lexists(layout.abort):
        queue = f"{place.topic}/{place.queue_id}"
        return str(command("repair", root, "--queue", queue, given=given))
    if verdict in (Verdict.UNREADABLE, Verdict.NOT_DISPATCHED):
        return str(command("recover", root, given=given))
    if verdict is Verdict.OFFSET_MOVED and place.queue_offset is not None:
        wanted = f"{place.topic}/{place.queue_id}@{group}={place.queue_offset}"
        return str(command("offsets", root, "--reset", wanted, given=given))
    if verdict is Verdict.FILTERED:
        return str(command("dump", layout.config / FILTERS, given=given))
    if verdict is Verdict.NOT_SERVED:
        where = next((one.where for one in judgement.evidence), f"config/{TOPICS}")
        return str(command("dump", root / where, given=given))
    return ""


def commands_of(found: Trace, layout: Layout, given: Given) -> list[str]:
    """All of them, each once; first what keeps a start from doing harm."""
    commands = []
    if found.next_start is not None and found.next_start.fate in _HARMFUL:
        commands.append(str(command("recover", layout.root, given=given)))
    if found.for_all is not None:
        place = Place(found.topic, found.queue_id, found.queue_offset)
        commands.append(command_for(found.for_all, place, layout, given))
    commands += [group.next_command for group in found.groups]
    return list(dict.fromkeys(command for command in commands if command))
