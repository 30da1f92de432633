"""A second process that checks the log for itself, while the first compares it with the rest.

The first reads the records without their CRCs and looks at queues, index and all else; the second
computes the CRCs and checks the invariants of the commit log. Both read the same parts.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from ..config import BrokerConfig
from ..errors import Unreadable
from ..store import Store
from .finding import Finding
from .log_pass import Part
from .scene import Scene, Scope

GROUPS_BESIDE = frozenset({"commit_log"})
_POLL_S = 0.1
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class _Work:
    """What the other process is to do."""

    root: Path
    config: BrokerConfig
    rate_bytes: int | None
    scope: Scope
    now_ms: int
    changing: bool
    parts: list[Part]


class LogBeside:
    """The other process, as a context manager: behind the block it is gone."""

    def __init__(self, scene: Scene, parts: list[Part]) -> None:
        store = scene.store
        root, rate = store.layout.root, store.rate_bytes
        work = _Work(root, store.config, rate, scene.scope, scene.now_ms, scene.live, parts)
        self._answer, child = _FORK.Pipe(duplex=False)
        self._stop = _FORK.Event()
        self._process = _FORK.Process(target=_main, args=(child, self._stop.is_set, work))
        self._process.start()
        child.close()

    def findings(self, scene: Scene) -> list[Finding]:
        """What the other process has found; it ends early if this run does.

        Raises Unreadable, and what the other process has raised.
        """
        while not self._answer.poll(_POLL_S):
            if scene.stopped():
                self._stop.set()
        try:
            answer = self._answer.recv()
        except EOFError as error:
            raise Unreadable("the second process of verify has died") from error
        if isinstance(answer, Exception):
            raise answer
        findings, unread, stopped_at = answer
        scene.unread += [text for text in unread if text not in scene.unread]
        ends = [end for end in (scene.log.stopped_at, stopped_at) if end is not None]
        scene.log.stopped_at = min(ends, default=None)
        return list(findings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def _main(answer: Connection, stop: Callable[[], bool], work: _Work) -> None:
    """The other process. Ctrl-C reaches it, too: the first one tells when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        answer.send(_checked(stop, work))
    except Exception as error:  # noqa: BLE001 - the first process raises it
        answer.send(error)
    finally:
        answer.close()


def _checked(stop: Callable[[], bool], work: _Work) -> tuple[list[Finding], list[str], int | None]:
    from .run import check_groups

    with Store(work.root, work.config, rate_bytes=work.rate_bytes) as store:
        scene = Scene(store, work.scope, work.now_ms, stop, changing=work.changing)
        check_groups(scene, GROUPS_BESIDE, work.parts, None)
        return list(scene.findings), scene.unread, scene.log.stopped_at
