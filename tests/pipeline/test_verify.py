"""`pipeline verify` and the local `verify` say the same of the same stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.pipeline.tasks import answer_of, told
from mqstore.pipeline.verify import check, joined, tasks_of
from mqstore.store.config import BrokerConfig
from mqstore.store.errors import Missing, StoreError
from mqstore.store.store import Store
from mqstore.store.verify.run import Verdict, verify
from mqstore.store.verify.scene import Scope

from .. import stores
from ..slices import pick

NOW_MS = 1_795_300_000_000
FAST = ("4.9.7-killed-page", "5.5.0-timer-killed")


def local(root: Path) -> Verdict:
    with Store(root, BrokerConfig()) as store:
        return verify(store, Scope(), now_ms=NOW_MS)


def in_tasks(roots: list[str]) -> list[tuple[str, Verdict | StoreError]]:
    """What Spark does, but for Spark."""
    tasks = tasks_of(roots, {}, NOW_MS)
    return joined(tasks, [told(answer_of(check, task)) for task in tasks])


def same(found: Verdict | StoreError, wanted: Verdict) -> None:
    """But for the time that it took, and for what a later run could use."""
    assert isinstance(found, Verdict), found
    assert replace(found, seconds=0.0, facts=wanted.facts) == replace(wanted, seconds=0.0)


@pytest.mark.parametrize("name", FAST)
def test_the_verdict_is_that_of_the_local_command(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    ((path, found),) = in_tasks([str(root)])
    assert path == str(root)
    same(found, local(root))


@pytest.mark.slow
def test_it_is_so_for_all_stores(tmp_path: Path) -> None:
    roots = [stores.unpack(name, tmp_path) for name in pick(stores.NAMES, "pipeline_verify")]
    for path, found in in_tasks([str(root) for root in roots]):
        same(found, local(Path(path)))


def test_a_store_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-v2", tmp_path)
    (none, error), (_, found) = in_tasks([str(tmp_path / "none"), str(root)])
    assert none == str(tmp_path / "none")
    assert isinstance(error, Missing) and str(error).startswith("no such directory")
    same(found, local(root))


def test_groups_are_confined() -> None:
    only_log = tasks_of(["s"], {}, NOW_MS, groups=frozenset({"commit_log"}))
    assert [task["groups"] for task in only_log] == [["commit_log"]]
    both = tasks_of(["s"], {}, NOW_MS, groups=frozenset({"commit_log", "index"}))
    assert [task["groups"] for task in both] == [["index"], ["commit_log"]]
