"""`mqstore repair` on stores with queues in a RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import stores
from .datadriven import run_here

pytestmark = pytest.mark.long


@pytest.mark.few(2)
@pytest.mark.parametrize("words", [("recover",), ("repair", "--queues"), ("repair", "--all")])
def test_an_emptied_directory_of_queues(words: tuple[str, ...], tmp_path: Path) -> None:
    """The queues were in a RocksDB, as the topics are: no files are made."""
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    for file in (root / "consumequeue").iterdir():
        file.unlink()
    command, *options = words
    result = run_here([command, str(root), *options, "--apply", "--yes"])
    assert result.code == 0, result.stdout + result.stderr
    assert (root / "consumequeue" / "CURRENT").is_file()
    assert not [path for path in (root / "consumequeue").iterdir() if path.is_dir()]
    assert run_here(["verify", str(root)]).code == 0


@pytest.mark.parametrize("kept_elsewhere", [False, True])
def test_what_has_to_be_run_first_has_the_options_that_were_given(kept_elsewhere: bool, tmp_path: Path) -> None:
    """The version, too: without it the plan would be for a guess."""
    root = stores.unpack("5.3.3-killed-bit", tmp_path)
    place = ["--journal", str(tmp_path / "kept")] if kept_elsewhere else []
    (tmp_path / "kept").mkdir()
    given = ["--broker-version", "4.9", "--set", "fileReservedTime=48", *place]
    refused = run_here(["repair", str(root), "--checkpoint", "--apply", "--yes", *given])
    assert (refused.code, "the log must be recovered first" in refused.stderr) == (5, True), refused
    assert f"run first: mqstore recover {root} --apply {' '.join(given)}, or use" in refused.stderr
