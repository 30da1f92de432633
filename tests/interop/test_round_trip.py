"""`dump | put` of real stores: the same messages again, and a store that the real broker serves.

Every store is taken twice: as `dump` shows it, where a new store gives its own offsets and times, and
with `--raw`, where each record is the same bytes but for its place in the log.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.message import TRANSACTION_MASK, SysFlag
from tests.cli.datadriven import run_here
from tests.slices import pick
from tests.stores import ALL, config, truth, unpack

from .conftest import Judge
from .oracle import VERSIONS
from .served import SIZES, Row, loaded, rows, settings

pytestmark = pytest.mark.interop

FAST = (*("4.9.7-lmq", "4.9.7-multipath", "5.3.3-batchcq", "5.3.3-dledger", "5.3.3-pop"), "5.3.3-propcrc")
DAMAGED = re.compile("-(bit|page|torn)(-|$)")
"""Stores with a damaged body, which `put` refuses, or torn properties, which it ends properly: no copy is the same."""
MADE_ANEW = {
    *("physical_offset", "position", "queue_offset", "message_id", "store_host", "body_crc"),
    *("body_crc_ok", "total_size", "magic_code", "store_timestamp", "after_damage"),
}
"""What a message gets from the store that it is put into."""
CHECKSUM = "__CRC32#"


def given(row: Row) -> Row:
    """What the producer gave. Its own address tells the width of the store's, too."""
    kept = {name: value for name, value in row.items() if name not in MADE_ANEW}
    kept["sys_flag"] &= ~SysFlag.STORE_V6
    kept["properties"] = {k: v for k, v in row["properties"].items() if k != CHECKSUM}
    kept["properties_raw"] = row.get("properties_raw", "").partition(CHECKSUM)[0]
    return kept


def dumped(root: Path, options: list[str], into: Path, *words: str) -> list[Row]:
    """The messages that `put` takes of what `dump` prints."""
    command = ["dump", str(root), "--format", "ndjson", "--output", str(into), *words, *options]
    result = run_here(command)
    assert result.code == 0, result.stderr
    found = rows(into.read_text())
    return [row for row in found if row["type"] == "message" and "stale" not in row]


def sizes_of(name: str, root: Path) -> dict[str, Any]:
    """The store's sizes; its directories and services are not those of the new one."""
    kept = ("mappedFileSize", "mapperFileSize", "maxHash", "maxIndex", "enabledAppendPropCRC")
    own = {key: value for key, value in config(name, root).items() if key.startswith(kept)}
    return SIZES | {"mappedFileSizeCommitLog": 1 << 26} | own


def put_again(name: str, tmp_path: Path, *, raw: bool) -> tuple[Path, list[Row], list[Row]]:
    """A new store with the messages of `name`: where, they, the answers."""
    root = unpack(name, tmp_path)
    words = ["--raw"] if raw else []
    before = dumped(root, settings(config(name, root)), tmp_path / "dump", *words)
    options = ["--as-broker", truth(name)["broker_version"], *settings(sizes_of(name, root))]
    if raw:
        options += ["--keep-times", "--store-host", before[0]["store_host"]]
    new = tmp_path / "new"
    said = run_here(["put", str(new), "--from", str(tmp_path / "dump"), "--format", "ndjson", *options])
    assert said.code == 0, f"{name}: {said.stderr}"
    after = dumped(new, settings(sizes_of(name, root)), tmp_path / "after", *words)
    assert len(after) == len(before), name
    # bodies that brokers compressed with another library have another size: what lies behind them moves
    places = {old["physical_offset"]: fresh["physical_offset"] for old, fresh in zip(before, after, strict=True)}
    for number, (old, fresh) in enumerate(zip(before, after, strict=True)):
        half = old["prepared_transaction_offset"]
        moved = {**given(old), "prepared_transaction_offset": places.get(half, half)}
        assert moved == given(fresh), f"{name}: message {number}"
        if raw:
            names = ("total_size", "magic_code", "store_timestamp")
            assert [old[n] for n in names] == [fresh[n] for n in names], f"{name}: {number}"
    return new, before, rows(said.stdout)


def records_of(found: list[Row]) -> list[Row]:
    """One message of each record: those of a batch record are answered together."""
    return [row for row in found if not row.get("inner_number")]


def has_unit(row: Row) -> bool:
    """Whether a queue gets the message: PREPARED and ROLLBACK are in the log alone."""
    state = row["sys_flag"] & TRANSACTION_MASK
    return state not in (SysFlag.PREPARED, SysFlag.ROLLBACK)


def batch_topics(new: Path) -> dict[str, Any]:
    """Topics that `topics.json` calls batch queues."""
    table = json.loads((new / "config" / "topics.json").read_text())["topicConfigTable"]
    kinds = {topic: entry.get("attributes", {}) for topic, entry in table.items()}
    return {t: {"queue.type": "BatchCQ"} for t, k in kinds.items() if "BatchCQ" in k.values()}


def check(name: str, oracle: Callable[[str], Judge], tmp_path: Path, *, raw: bool) -> None:
    new, before, answers = put_again(name, tmp_path, raw=raw)
    version = truth(name)["broker_version"]
    judge = oracle(version if version in VERSIONS else VERSIONS[-1])
    sizes = sizes_of(name, new)
    answer = loaded(judge, new, sizes, {"do": "get"}, topics=batch_topics(new))
    ends = max(row["physical_offset"] + row["total_size"] for row in answers)
    assert answer["after_load"]["max_offset"] == ends, name
    served = Counter(
        (m["topic"], m["queue_id"], m["physical_offset"]) for m in answer["steps"][0] if "sha1" in m and m["look_ok"]
    )
    wanted = Counter(
        (sent["topic"], row["queue_id"], row["physical_offset"])
        for sent, row in zip(records_of(before), answers, strict=True)
        if has_unit(sent)
    )
    missing = [place for place in wanted if place not in served]
    assert not missing, f"{name}: {len(missing)} of {len(wanted)}, first {missing[:3]}"


@pytest.mark.few(1)
@pytest.mark.parametrize("raw", [False, True], ids=["shown", "raw"])
@pytest.mark.parametrize("name", FAST)
def test_round_trip(name: str, raw: bool, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    check(name, oracle, tmp_path, raw=raw)


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True], ids=["shown", "raw"])
@pytest.mark.parametrize("name", pick([n for n in ALL if n not in FAST and not DAMAGED.search(n)], "round trips"))
def test_round_trip_of_all_stores(name: str, raw: bool, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    check(name, oracle, tmp_path, raw=raw)
