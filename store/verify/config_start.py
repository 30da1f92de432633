"""Files of `config/` that are missing, or whole and of another shape: what a start does (I-156).

What cannot be parsed is told by I-140 and I-141. Whether something is lost: `store/start/config`.
"""

from __future__ import annotations

import os

from ..disk.snapshot import QueueId
from ..start.config import ConfigFileStart, ConfigStart, config_start
from ..start.config_load import Start
from ..start.config_rules import STATISTICS, TIMER_CHECK
from .catalogue import Severity
from .config_tables import config_tables
from .context import Scene
from .queue_bounds import queue_bounds
from .register import after


@after("I-156")
def a_broker_takes_each_table(scene: Scene) -> None:
    """Each table that the store once had is taken by a start as it is."""
    if scene.scope.topic is not None or not scene.log.complete:
        return
    queues = [QueueId(queue.topic, queue.queue_id) for queue in scene.store.queues]
    bounds = queue_bounds(scene)
    ends = {queue: both for queue in queues if (both := bounds.of(queue)) is not None}
    start = config_start(scene.store.layout, scene.profile, ends)
    main = config_tables(scene).main
    for file in start.files:
        there = main.get(file.file)
        told = there is not None and there.problem is not None
        if file.start is Start.LOADS or file.file == TIMER_CHECK or told:
            continue
        if said := _said(file, start, missing=there is None):
            text, severity = said
            path = os.fspath(scene.store.layout.config / file.file)
            scene.findings.add("I-156", path, text, severity=severity)


def _said(
    file: ConfigFileStart, start: ConfigStart, *, missing: bool
) -> tuple[str, Severity] | None:
    """(what a start does with a file that it does not take, how bad that is); None for nothing."""
    what = "is missing" if missing else f"is not taken: {file.problem}"
    lost = file.file in start.forgotten and not start.bare
    if file.start is Start.REFUSES:
        return f"{what}, and its .bak is not taken either: no start", Severity.FATAL
    harmless = Severity.INFO if file.file in STATISTICS else Severity.WARNING
    if file.start is Start.BACKUP:
        more = ", which is older: entries are lost" if lost else ""
        return f"{what}; a broker reads its .bak{more}", Severity.ERROR if lost else harmless
    if lost:
        return f"{what}, and so is its .bak: a broker begins with an empty table", Severity.ERROR
    return None if missing else (f"{what}; a broker begins with an empty table", harmless)
