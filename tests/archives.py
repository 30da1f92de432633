"""Archives of stores and of the project, unpacked alike by every Python that the project runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(path: Path, target: Path) -> None:
    """Unpack a .tar.gz into `target`, mtimes kept; without `filter=`, which 3.11 has since 3.11.4."""
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
