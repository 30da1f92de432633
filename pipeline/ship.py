"""Bring this package to the executors of a cluster: a zip that Spark hands out.

numpy, pyarrow, pandas and construct must be there already: they are more than Python code.
"""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

_PACKAGES = ("formats", "store", "pipeline")
_SUFFIXES = (".py", ".toml", ".json")


def package_zip(folder: Path) -> Path:
    """Write a zip in `folder` of what runs on executors: all of the package but its command line."""
    here = Path(__file__).parents[1]
    target = folder / f"{here.name}.zip"
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        archive.write(here / "__init__.py", f"{here.name}/__init__.py")
        for package in _PACKAGES:
            for directory, _, names in os.walk(here / package, followlinks=True):
                for name in sorted(names):
                    path = Path(directory, name)
                    if path.suffix in _SUFFIXES:
                        archive.write(path, Path(here.name, path.relative_to(here)))
    return target
