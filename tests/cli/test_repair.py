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
