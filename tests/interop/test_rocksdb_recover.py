"""Stores with queues in a RocksDB that mqstore recovered: the real classes of 5.5.1 load them and serve every
message.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply

from .. import stores
from ..rocks_cases import Case, cases, damaged
from ..slices import SEED, share
from .served import loaded, mqstore, settings

pytestmark = pytest.mark.interop

NOT_BY_FILES = {
    *("other_path", "separate_path", "as_hybrid_separate", "no_lmq_in_rocks", "files_missing_all"),
    *("as_file_store", "store_db_manifest_half"),
}
"""No files are at fault, or none is left; a file store keeps no LMQs in a database."""
CASES = [case for case in cases() if case["kind"] not in NOT_BY_FILES]
CHOSEN = random.Random(SEED).sample(CASES, share(len(CASES)))
QUEUES = (
    *(("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicB", 1), ("TopicB", 2), ("TopicC", 0)),
    *(("%LMQ%a", 0), ("%LMQ%b", 0)),
)


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case["case"])
def test_everything_is_served(case: Case, oracle: Any, tmp_path: Path) -> None:
    root, config = damaged(case, tmp_path)
    found = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(Policy.KEEP))
    assert found.plan is not None
    layout = Layout.open(root, config)
    apply(layout, found.plan, lambda: replan(layout, found.main_version, found.options), Files())
    after = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(Policy.KEEP))
    queues = [list(queue) for queue in QUEUES]
    steps = ({"do": "get"},)
    answer = loaded(oracle(case["version"]), root, dict(config), *steps, queues=queues, files="none")
    served = [message for message in answer["steps"][0] if "sha1" in message]
    assert [message for message in answer["steps"][0] if "sha1" not in message] == []
    # a tombstone is served in each queue that its message was in, light ones too
    assert len(served) >= after.messages + after.tombstones
    assert all(message["look_ok"] for message in served)


@pytest.mark.parametrize("name", ["5.5.1-rocksdb", "5.5.1-config-v2"])
def test_a_log_that_is_gone(name: str, oracle: Any, tmp_path: Path) -> None:
    """A broker starts over, and its groups with it: at 0."""
    root = stores.unpack(name, tmp_path)
    config = stores.config(name, root)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    options = ["--force-empty-log", "--apply", "--yes", "--broker-version", name[:5]]
    mqstore("recover", root, *options, *settings(config), codes=(1,))
    new = {"topic": "TopicA", "queue_id": 0, "body": "after", "store_timestamp": 1_795_400_000_000}
    steps = ({"do": "get"}, {"do": "put", "messages": [new]}, {"do": "get"})
    answer = loaded(oracle(name[:5]), root, dict(config), *steps, queues=[["TopicA", 0]], files="none")
    assert [message for message in answer["steps"][0] if "sha1" in message] == []
    (message,) = answer["steps"][2]
    assert (message["queue_offset"], message["look_ok"]) == (0, True)
    assert mqstore("verify", root, *settings(config))
