"""The file `abort`: there while somebody writes, left behind by a crash (spec 04, 4.2)."""

from __future__ import annotations

import os
from pathlib import Path

from .files import Files, write_new


def create_abort(files: Files, path: Path, *, pid: bool) -> None:
    """Create the file, on disk before anything else is written. pid: 5.x writes the process id."""
    write_new(files, path, str(os.getpid()).encode() if pid else b"")


def remove_abort(files: Files, path: Path) -> None:
    """Remove the file: everything else is on disk."""
    files.unlink(path)
    files.sync_directory(path.parent)
