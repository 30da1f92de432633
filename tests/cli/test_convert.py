"""`repair --convert`: what it refuses, and what it says came of it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.convert import _text
from mqstore.store.disk.file_queue import file_name

from .. import stores
from ..mixed_store import mixed_store
from .datadriven import run_here


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--convert", "plain"], "--convert needs --to DIR"),
        (["--convert", "plain", "--to", "NEW", "--all"], "it cannot be combined with other parts"),
        (["--to", "NEW"], "--to needs --convert"),
    ],
)
def test_what_makes_no_sense_makes_nothing(words: list[str], told: str, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-dledger", tmp_path)
    new = tmp_path / "new"
    done = run_here(["repair", str(root), *(str(new) if word == "NEW" else word for word in words)])
    assert (done.code, done.stdout) == (2, "") and told in done.stderr, done
    assert not new.exists()


def test_a_log_of_a_dledger_becomes_a_plain_one(tmp_path: Path) -> None:
    """And a plain log is refused: there is nothing to convert."""
    root, new = stores.unpack("5.3.3-dledger", tmp_path), tmp_path / "new"
    done = run_here(["repair", str(root), "--convert", "plain", "--to", str(new)])
    assert done.code == 0, done
    first, *_, last = done.stdout.splitlines()
    count = len(list(stores.messages("5.3.3-dledger")))
    assert first.startswith(f"{count} records (") and f"written to {new}, a plain store for brokers 5.3" in first
    assert "Offset message ids have changed, because positions have." in last
    assert run_here(["verify", str(new), "--quick"]).code == 0
    again = run_here(["repair", str(new), "--convert", "plain", "--to", str(tmp_path / "third")])
    assert (again.code, again.stdout) == (5, "") and not (tmp_path / "third").exists()


def test_the_configuration_of_the_old_store_names_no_place_of_the_new_one(tmp_path: Path) -> None:
    """broker.conf has storePathCommitLog: nothing there is read, or written, for the new store."""
    root, new = stores.unpack("5.3.3-dledger", tmp_path), tmp_path / "new"
    options = [word for text in stores.config_set("5.3.3-dledger", root) for word in ("--set", text)]
    assert f"storePathCommitLog={root / 'commitlog'}" in options
    done = run_here(["repair", str(root), "--convert", "plain", "--to", str(new), *options])
    assert done.code == 0 and "3 of 3 queues keep all their offsets" in done.stdout, done
    assert not (root / "commitlog").exists()
    assert run_here(["verify", str(new), "--quick"]).code == 0


DONE: dict[str, Any] = {
    "records": 1,
    "bytes": 100,
    "to": "/new",
    "broker_version": "5.3",
    "damaged": 0,
    "wrong": 0,
    "torn": 0,
    "restored": 0,
    "dead": 0,
    "left": "",
    "queues": 20,
    "changed_queues": [],
    "left_behind": [],
    "open_transactions": 0,
    "delivered_again": 0,
}


def queue(number: int, topic: str = "t") -> dict[str, Any]:
    old, new = {"min_offset": 0, "max_offset": 9}, {"new_min_offset": 1, "new_max_offset": 9}
    return {"topic": topic, "queue_id": number, **old, **new}


def test_what_is_not_complete_is_said_last() -> None:
    page = _text(DONE | {"damaged": 2, "torn": 1, "dead": 3, "left": "no room", "changed_queues": [queue(0)]})
    assert page.splitlines() == [
        "1 record (100 B) written to /new, a plain store for brokers 5.3",
        "          2 damaged between good records, replaced by tombstones and fillers",
        "          1 with torn properties, some properties are lost",
        "          3 of an earlier life of the log, left out",
        "Not complete: no room",
    ]


def test_what_only_a_rocksdb_tells_brokers_is_counted() -> None:
    page = _text(DONE | {"open_transactions": 3, "delivered_again": 1, "left_behind": ["rocksdbstore"]})
    assert "\n  3 open transactions are unknown to brokers of the new store, which find them in rocksdbstore: " in page
    assert "\n  1 timed message that was delivered or cancelled will be delivered again, because rocksdbstore " in page


def test_queues_with_other_offsets_are_told_up_to_ten() -> None:
    page = _text(DONE | {"changed_queues": [queue(number) for number in range(12)], "left_behind": ["a", "b"]})
    assert "8 of 20 queues keep all their offsets" in page
    assert "t/9: 0 … 9, now 1 … 9" in page and "t/10" not in page
    assert "… 2 more (--format json)" in page and "Not copied: a, b\n" in page


def test_a_queue_that_is_gone_counts_as_one_it_had() -> None:
    gone = queue(0) | {"new_min_offset": 0, "new_max_offset": 0}
    assert "19 of 20 queues keep all their offsets" in _text(DONE | {"queues": 19, "changed_queues": [gone]})


def test_names_make_no_lines_of_their_own() -> None:
    plain = _text(DONE | {"changed_queues": [queue(0)], "left_behind": ["a"]})
    page = _text(DONE | {"changed_queues": [queue(0, "t\nmqstore: all is well")], "left_behind": ["a\nb"]})
    assert len(page.splitlines()) == len(plain.splitlines())


def test_a_dledger_log_behind_an_older_one_is_converted_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    """No command that would be refused, or that gives the messages other offsets, is named for such a store."""
    root = mixed_store(tmp_path)
    with (root / "commitlog" / file_name(0)).open("r+b") as log:
        log.seek(50_000)
        log.write(bytes(4096))
    convert = f"mqstore repair {root} --convert plain --to {root}-plain"
    seen, found = run_here(["inspect", str(root)]), run_here(["verify", str(root)])
    refused = run_here(["recover", str(root), "--apply", "--yes"])
    assert (seen.code, found.code, refused.code) == (0, 1, 5)
    assert seen.stdout.partition("\n")[0].endswith(f"Next: {convert}")
    assert found.stdout.partition("What now:")[2].splitlines()[1].startswith(f"  {convert}  #")
    assert refused.stderr.rstrip().endswith(convert)
    done = run_here(shlex.split(convert)[1:])
    assert done.code == 1 and "27 of 27 queues keep all their offsets" in done.stdout, done
    assert run_here(["verify", f"{root}-plain"]).code == 0


def test_a_file_that_is_missing_at_the_end_of_the_older_log(tmp_path: Path) -> None:
    root = mixed_store(tmp_path)
    (root / "commitlog" / file_name(262_144)).unlink()
    assert f"  commitlog/{file_name(262_144)}: this file is missing;" in run_here(["verify", str(root)]).stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("5.3.3-dledger", ["repair", "STORE", "--convert", "plain", "--to", "NEW"]),
        ("5.3.3-clean", ["salvage", "STORE", "--to", "NEW"]),
        ("5.3.3-clean", ["damage", "STORE", "--to", "NEW", "--scenario", "torn-tail"]),
        ("5.3.3-clean", ["pipeline", "compact", "STORE", "--topic", "orders", "--to", "NEW"]),
    ],
)
def test_the_same_broker_can_use_the_new_store(name: str, words: list[str], tmp_path: Path) -> None:
    """Run by root, all of it belongs to the user of the old store, not a part of it."""
    root, new = stores.unpack(name, tmp_path), tmp_path / "new"
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, 12345, 12346)
    root.chmod(0o750)
    done = run_here([{"STORE": str(root), "NEW": str(new)}.get(word, word) for word in words])
    assert new.stat().st_mode == root.stat().st_mode, done
    owner = (root.stat().st_uid, root.stat().st_gid)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (new, *new.rglob("*"))} == {owner}
