"""The zip of this package that executors get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.pipeline.spark import package_zip

pytestmark = pytest.mark.long


def test_the_package_runs_from_the_zip_that_executors_get(tmp_path: Path) -> None:
    """Its data files are in it: the catalogue of `verify` is read from the zip."""
    check = (
        "import mqstore.pipeline.rebuild_tasks, mqstore.pipeline.verify as v, sys;"
        "from mqstore.store.findings.catalogue import catalogue;"
        "assert v.__file__.startswith(sys.argv[1]), v.__file__; print(len(catalogue()) > 100)"
    )
    archive = package_zip(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, "-c", check, archive],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
