"""Segments that the real classes write now, from a real log, are read as those of `tests/tiered`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .. import stores, tiered
from ..store.tiered.test_segments import check_index, check_logs_and_queues
from ..store.tiered.test_segments_index_files import check_files
from .brokers import class_path, missing
from .oracle import java_flags

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java" / "tiered" / "Tiered.java"


@pytest.mark.parametrize("version", tiered.VERSIONS)
def test_segments_of_the_real_classes(version: str, tmp_path: Path) -> None:
    root, known = written(version, tmp_path), tiered.truth(version)
    check_logs_and_queues(root, known)
    check_index(root, known)


@pytest.mark.parametrize("version", tiered.VERSIONS)
def test_index_that_was_not_shut_down(version: str, tmp_path: Path) -> None:
    check_files(written(version, tmp_path, "-Dtiered.killed=true"), tiered.truth(version))


def written(version: str, folder: Path, *flags: str) -> Path:
    """A tiered store, by the real classes."""
    if why := missing(version):
        pytest.skip(why)
    log, root = stores.unpack(f"{version}-clean", folder) / "commitlog", folder / "tiered"
    command = ["java", *java_flags("1g"), "-Doracle.log=warn", *flags]
    subprocess.run(
        [*command, "-cp", class_path(version, SOURCE), "tiered.Tiered", log, root, tiered.TOPIC],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return root
