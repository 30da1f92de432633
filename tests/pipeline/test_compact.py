"""`pipeline compact`: the last message of each key, against a plain loop over the messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.cli.app import run
from mqstore.pipeline import compact
from mqstore.pipeline.compact import fill
from mqstore.pipeline.importing import options_of
from mqstore.pipeline.publishing import publish_job
from mqstore.pipeline.stage import Stage
from mqstore.store.commit_log import Batch, CommitLog
from mqstore.store.layout import Layout
from mqstore.store.message import Message, messages

from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


def all_of(root: Path) -> list[Message]:
    log = CommitLog.open(Layout.open(root))
    with log.queue:
        return [m for item in log.scan() if isinstance(item, Batch) for m in messages(item)]


def test_a_store_that_is_missing_moves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one of two stores that can be read gets its folder in DIR, not DIR itself."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    told: list[object] = []

    def job(folders: dict[str, str], *others: object) -> dict[str, Any]:
        told.append(folders)
        return {
            "stores": [
                {"store": root, "folder": folder, "messages": 0, "kept": 0, "damage": []}
                for root, folder in folders.items()
            ]
        }

    monkeypatch.setattr(compact, "compact_stores", job)
    words = ["pipeline", "compact", str(root), str(tmp_path / "none"), "-t", "a"]
    assert run([*words, "--to", str(new), "--format=ndjson"]) == 5
    assert told == [{str(root): root.name}]
    assert json.loads(capsys.readouterr().out)["to"] == str(new / root.name)


def test_the_last_message_of_each_key_stays(spark: SparkSession, tmp_path: Path) -> None:
    root, new = unpack("5.3.3-compaction", tmp_path), tmp_path / "new"
    found = all_of(root)
    keyed = [m for m in found if m.properties.get("KEYS", "").strip()]
    topics = {m.topic for m in keyed if not m.topic.startswith(("rmq_sys", "SCHEDULE", "%"))}
    wanted: dict[tuple[str, int, str], Message] = {}
    for message in keyed:
        if message.topic in topics:
            wanted[message.topic, message.queue_id, message.properties["KEYS"]] = message
    kept = sorted(
        (m for m in wanted.values() if m.stored_body),
        key=lambda m: (m.store_timestamp, m.physical_offset),
    )
    assert kept and len(kept) < len(keyed), "there is something to compact"
    ask = {"path": str(root), "topics": ",".join(sorted(topics))}

    def job(stage: Stage) -> None:
        counts = fill(spark, ask, stage, options_of(SIZES, "5.3", keep_times=True))
        stage.seal(counts)

    counts = publish_job(new, job, lambda _: False)
    messages = sum(m.topic in topics for m in found)
    assert counts == {"messages": messages, "kept": len(kept), "damage": []}
    assert [(m.topic, m.queue_id, m.properties["KEYS"], m.stored_body) for m in all_of(new)] == [
        (m.topic, m.queue_id, m.properties["KEYS"], m.stored_body) for m in kept
    ]
