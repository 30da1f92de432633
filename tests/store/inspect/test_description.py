"""Parts of real stores beside log, queues and index, told in a line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.formats.dledger_index import FILE_BYTES
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.description import parts_of

from ...cli.datadriven import run_here
from ...stores import messages, truth, unpack


def told(root: Path) -> dict[str, str]:
    return dict(parts_of(Layout.open(root)))


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.5.0-timer-clean"])
def test_most_stores_have_none(name: str, tmp_path: Path) -> None:
    """A position-checkpoint without entries, which each 5.x broker leaves, is none."""
    assert told(unpack(name, tmp_path)) == {}


def test_batch_queues(tmp_path: Path) -> None:
    found = told(unpack("5.3.3-batchcq", tmp_path))["batchconsumequeue"]
    ends = [q for t, q in truth("5.3.3-batchcq")["queues"].items() if t.startswith("BatchTopic/")]
    count = sum(q["max_offset"] - q["min_offset"] for q in ends)
    records = sum(m["topic"] == "BatchTopic" for m in messages("5.3.3-batchcq"))
    text = f"BatchTopic: {len(ends)} queues, {records} batches of {count} messages"
    assert found == text.replace(" 1 queues", " 1 queue")


def test_compaction(tmp_path: Path) -> None:
    root = unpack("5.3.3-compaction", tmp_path)
    assert told(root) == {
        "compaction": "state: 2 queues, 37 messages left",
        "position-checkpoint": "compacted: state/1 to 265, state/0 to 265",
    }
    path = root / "compaction" / "position-checkpoint"
    path.write_text("{")
    assert "a broker reads position-checkpoint.bak" in told(root)["position-checkpoint"]


def test_ext(tmp_path: Path) -> None:
    found = told(unpack("4.9.7-cqext", tmp_path))["consumequeue_ext"]
    assert "SQL bit maps of" in found and "sql" in found


def test_dledger_and_controller(tmp_path: Path) -> None:
    root = unpack("5.3.3-dledger", tmp_path)
    (root / "brokerIdentity").write_text("cluster#broker-a#3")
    (root / "epochFileCheckpoint").write_text("2\n773307083\n7-7000\n8-8000\n")
    assert told(root) == {
        "dledger-n0": "committedIndex 204, endIndex 204, voteLeader n0, currTerm 0",
        "brokerIdentity": "broker broker-a of cluster, id 3",
        "epochFileCheckpoint": "2 epochs, 8 begins at 8000",
    }
    (root / "brokerIdentity").write_text("cluster#broker-a")
    for name in ("checkpoint", "currterm"):
        (root / "dledger-n0" / name).unlink()
    found = told(root)
    assert "2 parts" in found["brokerIdentity"]
    assert found["dledger-n0"] == "neither checkpoint nor currterm"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("dledger-n0/data/old/", "length not matched message store config value: a directory among the files"),
        ("dledger-n0/index/9/", "Load file failed, this usually indicates fatal error (System.exit): a directory"),
        ("dledger-n0/index/00000000000000000000", f"(System.exit): {FILE_BYTES - 1} bytes"),
        ("dledger-n0/data/-", "DLedgerException: check data file order failed before recovery"),
        ("checkpoint/", "FileNotFoundException: Is a directory"),
        ("config/topics.json", "config/topics.json cannot be read"),
    ],
)
def test_what_keeps_a_dledger_broker_from_its_start(place: str, why: str, tmp_path: Path) -> None:
    """By names and lengths of files, and by config/, as `verify` says in its first line."""
    root = unpack("5.3.3-dledger", tmp_path)
    path = root / place
    if place.endswith("-"):
        sorted(path.parent.iterdir())[1].unlink()
    elif place.endswith("/"):
        path.unlink(missing_ok=True)
        path.mkdir()
    elif "index" in place:
        os.truncate(path, FILE_BYTES - 1)
    else:
        path.write_text("x")
        path.with_name(f"{path.name}.bak").write_text("x")
    first, verified = (run_here([word, str(root)]).stdout.splitlines()[0] for word in ("inspect", "verify"))
    assert first.startswith("Do not start a broker: a broker 5.3 would not start: ") and why in first
    assert verified.split("; ")[0] == f"{root}: {first.split('. Next: ')[0]}"
