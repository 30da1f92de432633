"""`--rate`: every command that reads a store waits for what it reads, and leaves the page cache as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import stores
from ..store.disk.test_byte_reader_page_cache import cached, leave
from .datadriven import run_here

_LOG, _QUEUES, _INDEX, _NOTHING = "commitlog", "consumequeue", "index", ""
_ONE = ["--topic", "orders", "--limit", "1"]
_READS = {
    ("dump", "STORE"): _LOG,
    ("dump", "STORE/consumequeue"): _QUEUES,
    ("dump", "STORE/index"): _INDEX,
    ("inspect", "STORE"): _NOTHING,
    ("get", "STORE", *_ONE): _NOTHING,
    ("get", "STORE", "--key", "key28"): _NOTHING,
    ("trace", "STORE", "key28"): _NOTHING,
    ("verify", "STORE"): _LOG,
    ("recover", "STORE"): _LOG,
    ("repair", "STORE"): _LOG,
    ("salvage", "STORE", "--dry-run"): _LOG,
    ("offsets", "STORE"): _NOTHING,
    ("diff", "STORE", "STORE"): _QUEUES,
    ("stats", "STORE"): _LOG,
    ("report", "STORE", "--to", "FILE"): _LOG,
    ("damage", "STORE", "--to", "FILE", "--scenario", "torn-tail"): _LOG,
}
"""Command → the folder of which it reads all that is written, at least."""


def _command(words: tuple[str, ...], root: Path, rate: str) -> list[str]:
    named = [word.replace("STORE", str(root)).replace("FILE", str(root.parent / "new")) for word in words]
    return [*named, "--rate", rate]


@pytest.mark.few(4)
@pytest.mark.parametrize("words", _READS, ids=" ".join)
def test_every_command_waits_for_what_it_reads(words: tuple[str, ...], tmp_path: Path, waited: list[float]) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    held = 0
    if part := _READS[words]:
        files = [path for path in (root / part).rglob("*") if path.is_file()]
        held = sum(len(path.read_bytes().rstrip(b"\0")) for path in files)
    run_here(_command(words, root, "1K"))
    assert sum(waited) > 0.9 * held / 1024
    assert waited


@pytest.mark.few(4)
@pytest.mark.parametrize("words", _READS, ids=" ".join)
def test_every_command_leaves_the_page_cache_as_it_was(
    words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path_factory.mktemp("disk"))
    paths = [p for part in (_LOG, _QUEUES, _INDEX) for p in sorted((root / part).rglob("*")) if p.is_file()]
    for number, path in enumerate(paths):
        leave(path, number % 2)
    before = {path: cached(path) for path in paths}
    run_here(_command(words, root, "1T"))
    changed = [path.relative_to(root).as_posix() for path in paths if (cached(path) != before[path]).any()]
    assert not changed
