"""Two stores that are compared: a copy, damage that is not alike, and what is told of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from mqstore.store.library import Store
from mqstore.store.log.commit_log import Extent, ExtentKind


def copy_of(root: Path) -> Path:
    other = root.parent / "other"
    shutil.copytree(root, other)
    return other


def told(err: str) -> list[str]:
    """Lines on stderr, without the one that names the quicker command."""
    lines = [line.removeprefix("mqstore: ") for line in err.splitlines()]
    return [line for line in lines if "is quicker" not in line]


def spoil(root: Path) -> None:
    """Change a byte of what is damaged already."""
    with Store(root) as store:
        items = [item for item in store.log.scan() if isinstance(item, Extent)]
        (damage,) = (item for item in items if item.kind is ExtentKind.DAMAGE)
        file = store.log_files.file_at(damage.position)
    assert file is not None
    with Path(file.path).open("r+b") as opened:
        opened.seek(damage.position + 100 - file.start)
        opened.write(b"\x7f")
