"""How far Spark's jobs are: stages that are over count as one, of others the share of their tasks."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from mqstore.pipeline import watch


class Tracker:
    """A status tracker: what is active at each question, stage by stage: (done, all) tasks."""

    def __init__(self, *answers: dict[int, tuple[int, int]]) -> None:
        self.answers = list(answers)
        self.now: dict[int, tuple[int, int]] = {}

    def getActiveStageIds(self) -> list[int]:
        self.now = self.answers.pop(0)
        return list(self.now)

    def getStageInfo(self, number: int) -> SimpleNamespace:
        done, tasks = self.now[number]
        return SimpleNamespace(numTasks=tasks, numCompletedTasks=done)


def test_stages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_POLL_S", 0)
    tracker = Tracker({}, {0: (1, 4)}, {0: (3, 4)}, {1: (0, 0), 2: (1, 2)}, {2: (2, 2)}, {})
    told: list[float] = []
    ended = threading.Event()

    def tell(stages: float) -> None:
        told.append(stages)
        if not tracker.answers:
            ended.set()

    watch._ask(tracker, ended, tell)
    assert told == [0, 0.25, 0.75, 1.5, 2, 2]
