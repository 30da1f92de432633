"""`--master`, for real: the code gets to the workers by itself, the output is the same everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from ..stores import unpack
from . import clusters
from .trees import contents, tree

pytestmark = pytest.mark.slow

STORES = ("5.3.3-batchcq", "4.9.7-clean")


def local_cluster(folder: Path) -> AbstractContextManager[str]:
    return nullcontext("local-cluster[1,2,1024]")


def program(*arguments: object, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mqstore", "pipeline", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.parametrize("cluster", [local_cluster, clusters.standalone, clusters.connect])
def test_a_cluster_whose_workers_do_not_have_the_package(
    cluster: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    roots = [unpack(name, tmp_path / "fleet") for name in STORES]
    environment = clusters.environment(tmp_path)
    with cluster(tmp_path) as master:
        spark = ["--master", master, "--executor-memory", "512m"]
        done = program(
            *("rebuild", *roots, "--to", tmp_path / "new", *spark, "--format", "json"), environment=environment
        )
        assert (done.returncode, done.stderr) == (0, "")
        checked = program("verify", *roots, *spark, "--format", "json", environment=environment)
        assert (checked.returncode, checked.stderr) == (0, "")
    for root in roots:
        made = tmp_path / "new" / root.name
        for part in ("consumequeue", "batchconsumequeue"):
            assert tree(made / part) == tree(root / part), f"{root.name}: {part}"
        assert contents(made / "index") == contents(root / "index"), root.name
    summaries = [row for row in json.loads(checked.stdout) if row["type"] == "summary"]
    assert [row["store"] for row in summaries] == [str(root) for root in roots]
    assert "mqstore-spark-" not in " ".join(os.listdir(tmp_path))  # noqa: PTH208
