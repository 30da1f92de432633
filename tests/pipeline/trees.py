"""Digests of the files below a directory."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree(root: Path) -> dict[str, str]:
    """Digest of every file below a directory."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def contents(folder: Path) -> list[str]:
    """Digests of the files of a folder in the order of their names."""
    return list(tree(folder).values())
