"""Lost batches of batch queues, and lost batch queues, in the hands of real brokers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.batches import BATCH_UNIT_DTYPE
from mqstore.store.recover.recovery import replan
from mqstore.store.session.apply import apply
from tests import recovery_cases

from .conftest import Judge
from .served import Row, loaded

pytestmark = pytest.mark.interop

TOPICS = {"B": {"queue.type": "BatchCQ"}}
BASES = ("batch-5.1.4-halt-1", "batch-5.3.3-clean-2", "batch-5.5.0-halt-1")


def opened(base: str, root: Path) -> tuple[BrokerConfig, dict[str, Any]]:
    """The configuration of a store, and the topics of batches."""
    case = next(c for c in recovery_cases.feature_cases() if c["base"] == base)
    topics = {path.name: TOPICS["B"] for path in (root / "batchconsumequeue").iterdir()}
    return recovery_cases.config_of(case, root), topics


def kept(root: Path, config: BrokerConfig, version: str) -> Plan:
    options = RecoveryOptions(Policy.KEEP, 1_795_300_000_000, (version.rpartition(".")[0],))
    plan = replan(Layout.open(root, config), version, options)
    apply(Layout.open(root, config), plan, lambda: replan(Layout.open(root, config), version, options), Files())
    return plan


def told(judge: Judge, root: Path, config: BrokerConfig, topics: dict[str, Any]) -> list[Row]:
    """What a consumer gets of every queue offset, as far as it can be compared."""
    answer = loaded(judge, root, dict(config.items()), {"do": "get"}, files="none", topics=topics)
    names = ("queue", "unit", "physical_offset", "sha1", "queue_offset")
    return [{name: row.get(name) for name in names} for row in answer["steps"][0]]


def largest_batch(root: Path) -> tuple[Path, np.void]:
    """A queue file and the unit in the middle of it that names the most messages."""
    path = max((root / "batchconsumequeue").rglob("0000*"), key=lambda p: len(p.read_bytes().rstrip(b"\0")))
    units = np.frombuffer(path.read_bytes(), BATCH_UNIT_DTYPE)
    units = units[units["size"] > 0][1:-1]
    return path, units[int(units["batch_size"].argmax())]


@pytest.mark.few(1)
@pytest.mark.parametrize("base", BASES)
def test_a_lost_batch(base: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """Its tombstone takes its place in the queue: no offset moves, before and after a rebuild."""
    version = base.split("-")[1]
    judge, root = oracle(version), tmp_path / "store"
    shutil.copytree(recovery_cases.base(base, tmp_path), root)
    config, topics = opened(base, root)
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    truth = told(judge, whole, config, topics)
    _, unit = largest_batch(root)
    size = config.get_int("mappedFileSizeCommitLog") or 0
    position = int(unit["physical_offset"])
    with (root / "commitlog" / f"{position // size * size:020d}").open("r+b") as file:
        file.seek(position % size + int(unit["size"]) // 2)
        file.write(b"\xff\xfe\xfd")
    plan = kept(root, config, version)
    assert plan.lost.messages == unit["batch_size"] > 1
    rebuilt = Path(shutil.copytree(root, tmp_path / "rebuilt"))
    shutil.rmtree(rebuilt / "batchconsumequeue")
    shutil.rmtree(rebuilt / "consumequeue")
    (rebuilt / "abort").touch()
    (rebuilt / "checkpoint").write_bytes(bytes(4096))
    for store in (root, rebuilt):
        found = told(judge, store, config, topics)
        others = [row for row in truth if row["physical_offset"] != position]
        assert [row for row in found if row["physical_offset"] != position] == others
        there = [row["unit"] for row in truth if row["physical_offset"] == position]
        assert [r["unit"] for r in found if r["physical_offset"] == position] == there


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("base", "spoil"),
    [
        pytest.param(base, spoil, marks=[pytest.mark.slow] * (base != BASES[1] and spoil != "all"))
        for base in BASES
        for spoil in ("all", "one", "unit")
    ],
)
def test_batch_queues_from_the_log(base: str, spoil: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """Gone, or with noise in them: they are as the broker had them."""
    version = base.split("-")[1]
    judge, root = oracle(version), tmp_path / "store"
    shutil.copytree(recovery_cases.base(base, tmp_path), root)
    config, topics = opened(base, root)
    kept(root, config, version)
    truth = told(judge, Path(shutil.copytree(root, tmp_path / "whole")), config, topics)
    path, _ = largest_batch(root)
    if spoil == "all":
        shutil.rmtree(root / "batchconsumequeue")
    elif spoil == "one":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[100:104] = b"\xff\xff\xff\xff"
        path.write_bytes(data)
    table = ", ".join(f'"{t}": {{"topicName": "{t}", "attributes": {{"queue.type": "BatchCQ"}}}}' for t in topics)
    (root / "config").mkdir(exist_ok=True)
    (root / "config/topics.json").write_text(f'{{"topicConfigTable": {{{table}}}}}')
    plan = kept(root, config, version)
    assert plan.edits and not plan.lost.messages
    assert told(judge, root, config, topics) == truth
