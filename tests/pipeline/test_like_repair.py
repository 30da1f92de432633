"""`pipeline rebuild` and the local `repair` make the same of the same log, byte by byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.timer_wheel import FILE_BYTES
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import rebuild
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.repair import analyze, replan
from mqstore.store.session.apply import apply

from .. import stores
from ..slices import pick
from .plain import plain_job
from .trees import contents, tree

NOW_MS = 1_795_300_000_000
SOUND = tuple(
    name
    for name in stores.NAMES
    if stores.truth(name)["expected_verdict"] in ("clean", "unclean")
    and not any(word in name for word in ("rocksdb", "dledger", "cqext", "expired", "multipath", "9.7-lmq"))
)
"""Logs that need no repair themselves. The local repair writes no
consumequeue_ext, and no queue of a topic with a slash in its name, as 4.9 has."""
FAST = ("4.9.7-killed", "5.3.3-batchcq", "5.5.0-timer-killed")


def repaired(root: Path, config: BrokerConfig) -> None:
    """What `repair --all` does: after a kill the log has an empty file at its end."""
    layout = Layout.open(root, config)
    found = analyze(layout, Choice(), None, NOW_MS)

    def again() -> object:
        return replan(Layout.open(root, config), found.request)

    apply(layout, found.plan, again, Files(), command="repair")  # type: ignore[arg-type]


def compare(name: str, folder: Path) -> None:
    """Take from a store all that is derived, and make it twice."""
    root = stores.unpack(name, folder)
    config = BrokerConfig(stores.config(name, root))
    for part in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(root / part, ignore_errors=True)
    (root / "checkpoint").unlink()
    wheel = root / "timerwheel"
    has_timer = any((root / "timerlog").glob("*"))
    if has_timer:
        wheel.write_bytes(bytes(FILE_BYTES // 2))  # then the local command makes a new one
    rebuild(plan_of([root], config), folder / "new", plain_job())
    repaired(root, config)
    for part in ("consumequeue", "batchconsumequeue"):
        assert tree(folder / "new" / part) == tree(root / part), f"{name}: {part} differs"
    assert contents(folder / "new" / "index") == contents(root / "index"), f"{name}: index"
    for single in ("checkpoint", *(["timerwheel"] if has_timer else [])):
        made, wanted = (place / single for place in (folder / "new", root))
        assert made.read_bytes() == wanted.read_bytes(), f"{name}: {single} differs"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", FAST)
def test_all_that_is_derived_is_as_repair_makes_it(name: str, tmp_path: Path) -> None:
    compare(name, tmp_path)


@pytest.mark.slow
def test_it_is_so_for_all_stores(tmp_path: Path) -> None:
    for name in pick(SOUND, "like_repair"):
        compare(name, tmp_path / name)
