"""Segments that the real classes write now, from a real log, are read as those of `tests/tiered`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .. import stores, tiered
from ..store.tiered.test_segments import check_index, check_logs_and_queues
from .brokers import class_path, missing
from .oracle import java_flags

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java" / "tiered" / "Tiered.java"


@pytest.mark.parametrize("version", tiered.VERSIONS)
def test_segments_of_the_real_classes(version: str, tmp_path: Path) -> None:
    if why := missing(version):
        pytest.skip(why)
    log = stores.unpack(f"{version}-clean", tmp_path) / "commitlog"
    root = tmp_path / "tiered"
    command = ["java", *java_flags("1g"), "-Doracle.log=warn", "-cp", class_path(version, SOURCE)]
    subprocess.run(
        [*command, "tiered.Tiered", str(log), str(root), tiered.TOPIC],
        check=True,
        capture_output=True,
        timeout=120,
    )
    known = tiered.truth(version)
    check_logs_and_queues(root, known)
    check_index(root, known)
