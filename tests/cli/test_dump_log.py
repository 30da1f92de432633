"""`dump` of logs: places, counts, single files, bodies and frames."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from .. import stores
from .datadriven import run_here
from .printed import dumped

STORE = "5.3.3-clean"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store."""
    return stores.unpack(STORE, tmp_path_factory.mktemp("store"))


def _messages() -> list[dict[str, Any]]:
    return list(stores.messages(STORE))


def _offsets(records: list[dict[str, Any]]) -> list[int]:
    return [record["physical_offset"] for record in records]


def test_at_and_count(store: Path) -> None:
    """From a record's position, from the middle of one, from behind the end."""
    offsets = _offsets(_messages())
    for place in (0, 1, offsets[5], offsets[5] + 1, offsets[100] - 1, offsets[-1]):
        wanted = [offset for offset in offsets if offset >= place][:3]
        assert _offsets(dumped(store, "--at", str(place), "--count", str(len(wanted)))) == wanted
    assert dumped(store, "--at", str(1 << 50)) == []
    assert dumped(store, "--count", "0") == []


@pytest.mark.parametrize("below", ["", "consumequeue/orders/0"])
@pytest.mark.parametrize("options", [[], ["--hex"], ["--format", "ndjson"]])
def test_a_place_behind_the_end_is_told(below: str, options: list[str], store: Path) -> None:
    """It may be mistyped; zeros that are there for messages to come are nothing, either."""
    ends = [] if below else [_messages()[-1]["physical_offset"] + 1000]
    for place in (1 << 50, *ends):
        result = run_here(["dump", str(store / below), "--at", str(place), *options])
        assert (result.code, result.stdout) == (0, "")
        assert f"nothing to print at {place} or behind it" in result.stderr
    assert not run_here(["dump", str(store / below), "--at", "0", "--count", "1", *options]).stderr


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_that_is_not_there_is_no_empty_one(empty: bool, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "commitlog")
    if empty:
        (root / "commitlog").mkdir()
    out, err, code = run_here(["dump", str(root), "--format", "ndjson"])
    assert (code, out) == (5, "")
    assert "no commit log, but full queues: is the path wrong, or a disk not mounted?" in err


def test_a_disk_of_the_log_that_is_not_mounted_is_told(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-multipath-killed", tmp_path)
    config = stores.config("5.3.3-multipath-killed", root)
    (root / "d1").rename(tmp_path / "away")
    sets = [word for name, value in config.items() for word in ("--set", f"{name}={value}")]
    out, err, code = run_here(["dump", str(root), "--format", "ndjson", *sets])
    assert code == 0
    assert out
    assert "d1/commitlog is not there: is a disk not mounted?" in err


def test_single_files_and_copies_are_the_log(store: Path, tmp_path: Path) -> None:
    """In their place, elsewhere, and without the name that tells where they begin."""
    offsets = _offsets(_messages())
    found: list[int] = []
    for file in sorted((store / "commitlog").iterdir()):
        own = _offsets([r for r in dumped(file) if r["type"] == "message"])
        if own:
            copy = tmp_path / f"copy-of-{file.name}.bin"
            shutil.copy(file, copy)
            assert _offsets([r for r in dumped(copy) if r["type"] == "message"]) == own
        found += own
    assert found == offsets


def test_raw_bodies_are_the_stored_bytes(store: Path) -> None:
    """Compressed ones too, as base64."""
    import base64
    import hashlib

    for ours, truth in zip((r for r in dumped(store, "--raw") if r["type"] == "message"), _messages(), strict=True):
        stored = base64.b64decode(ours["body_base64"])
        assert ours["raw"] is True
        assert hashlib.sha1(stored).hexdigest() == truth["body_sha1"]


def test_a_body_above_the_limit_is_printed_as_stored(store: Path) -> None:
    """And says so."""
    compressed = [r for r in dumped(store) if "body_compression" in r]
    limited = {r["physical_offset"]: r for r in dumped(store, "--max-body", "10")}
    assert compressed
    for record in compressed:
        assert "--max-body" in limited[record["physical_offset"]]["body_error"]


def test_places_and_bytes_of_dledger_entries(tmp_path: Path) -> None:
    """A record is found by its own position; the hex view shows the entry around it."""
    store = stores.unpack("5.3.3-dledger", tmp_path)
    offsets = [m["physical_offset"] for m in stores.messages("5.3.3-dledger")]
    for number in (0, 3, len(offsets) - 1):
        assert _offsets(dumped(store, "--at", str(offsets[number]), "--count", "1")) == [offsets[number]]
    shown = run_here(["dump", str(store), "--at", str(offsets[3]), "--hex", "--count", "2"]).stdout
    assert f"DLedger entry at {offsets[3] - 48}, 48 bytes" in shown
    assert f"message at {offsets[3]}" in shown
    assert shown.count("-- message at") == 2
    assert re.search(rf" pos +{offsets[3] - 48} ", shown)
