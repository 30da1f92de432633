"""`dump STORE --format ndjson` against the truth about every store: what Java reads, we read."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.message import SMALLEST

from .. import stores
from ..slices import pick
from ..store.choices import few
from .datadriven import run_here

Record = Mapping[str, Any]

SAME = (
    *("physical_offset", "total_size", "topic", "queue_id", "queue_offset", "sys_flag", "flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    *("body_crc", "properties"),
)
"""Fields that the truth and `dump` call alike."""

DAMAGED_FROM = {"stale", "after_damage"}
FAST = tuple(name for name in stores.NAMES if name != "5.3.3-large")


def dump(store: Path, *options: str) -> list[dict[str, Any]]:
    """What `dump` prints of a store, as records."""
    result = run_here(["dump", str(store), "--format", "ndjson", *options])
    assert result.code == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    damaged = any(record["type"] == "damage" for record in records)
    assert bool(result.stderr) == damaged, "damage is reported on stderr, and nothing else"
    return records


def _host(text: str) -> str:
    """The truth's hosts as ours: Java writes IPv6 addresses in another way."""
    import ipaddress

    address, _, port = text.rpartition(":")
    ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def _wrong_fields(ours: Record, raw: Record, truth: Record) -> Iterator[str]:
    for name in SAME:
        if ours[name] != truth[name]:
            yield f"{name}: {ours[name]!r}, not {truth[name]!r}"
    stored = base64.b64decode(raw["body_base64"])
    for name, found, expected in (
        ("magic_code", ours["magic_code"], truth["magic"]),
        ("message_id", ours["message_id"], truth["offset_msg_id"]),
        ("born_host", ours["born_host"], _host(truth["born_host"])),
        ("store_host", ours["store_host"], _host(truth["store_host"])),
        ("body size", len(stored), truth["body_length"]),
        ("stored body", hashlib.sha1(stored).hexdigest(), truth["body_sha1"]),
        ("body", _body_sha1(ours), truth.get("body_sha1_decompressed", truth["body_sha1"])),
        ("body_crc_ok", ours["body_crc_ok"], _crc_fits(stored, truth["body_crc"])),
        ("tags", ours["tags"], truth["properties"].get("TAGS")),
        ("unique_key", ours["unique_key"], truth["properties"].get("UNIQ_KEY")),
        ("keys", ours["keys"], truth["properties"].get("KEYS", "").split()),
    ):
        if found != expected:
            yield f"{name}: {found!r}, not {expected!r}"


def _crc_fits(stored: bytes, body_crc: int) -> bool:
    return not stored or zlib.crc32(stored) & 0x7FFFFFFF == body_crc


def _body_sha1(record: Record) -> str:
    body = record.get("body")
    data = base64.b64decode(record["body_base64"]) if body is None else body.encode()
    return hashlib.sha1(data).hexdigest()


def check(name: str, folder: Path) -> None:
    """Compare the dump of a store with its truth."""
    store = stores.unpack(name, folder)
    options = [word for setting in stores.config_set(name, store) for word in ("--set", setting)]
    records = dump(store, *options)
    raw = dump(store, "--raw", *options)
    assert [_place(r) for r in raw] == [_place(r) for r in records if not r.get("inner_number")]
    raw_of = {_place(r): r for r in raw}
    found = {_place(r): r for r in records if r["type"] == "message"}
    # what is inside of batch records is compared with what consumers got (store/log/test_batch)
    found |= {_place(r): raw_of[_place(r)] for r in records if "inner_number" in r}
    expected = {m.get("position", m["physical_offset"]): m for m in stores.messages(name)}
    damage = [r for r in records if r["type"] == "damage"]
    wrong: list[str] = []
    for position, truth in expected.items():
        ours = found.pop(position, None)
        if ours is None:
            if not _is_ghost(truth):
                wrong.append(f"message at {position} is missing")
            continue
        fields = [*_wrong_fields(ours, raw_of[position], truth), *_odd_marks(ours, damage)]
        wrong += [f"message at {position}: {field}" for field in fields]
    for position, ours in found.items():
        if not DAMAGED_FROM & ours.keys():
            wrong.append(f"message at {position} is not in the truth and has no mark")
    assert not wrong, "\n".join(wrong[:20])
    blanks = {(r["physical_offset"], r["size"]) for r in records if r["type"] == "blank"}
    missing = {(b["physical_offset"], b["size"]) for b in stores.truth(name)["blanks"]} - blanks
    assert not missing, f"BLANKs {missing} are not told"


def _place(record: Record) -> int:
    """Where a record lies."""
    position = record.get("position", record.get("physical_offset"))
    assert isinstance(position, int)
    return position


def _is_ghost(truth: Record) -> bool:
    """Java makes a message of a header of zeros, and of a record whose topic is torn off.

    For us that is damage.
    """
    torn = not truth["topic"] and truth["total_size"] != SMALLEST + truth["body_length"]
    return bool(torn or truth["store_timestamp"] == 0)


def _odd_marks(ours: Record, damage: Sequence[Record]) -> list[str]:
    """A record that Java's walk reaches has no mark, but for one behind a file that is missing."""
    behind_a_hole = any(r["position"] < _place(ours) for r in damage if "missing" in r["reason"])
    return [
        f"marked {mark}"
        for mark in sorted(DAMAGED_FROM & ours.keys())
        if not (mark == "after_damage" and behind_a_hole)
    ]


@pytest.mark.few(8)
@pytest.mark.parametrize("name", few(FAST))
def test_dump_is_the_truth(name: str, tmp_path: Path) -> None:
    """Positions, every field and property, body hashes, CRC verdicts, BLANKs."""
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", pick([n for n in (*stores.ALL, *stores.OF_TODAY) if n not in FAST], "dump stores"))
def test_dump_is_the_truth_of_all_stores(name: str, tmp_path: Path) -> None:
    """Those that are not copied into tests/."""
    check(name, tmp_path)
