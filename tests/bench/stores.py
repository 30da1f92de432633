"""The stores that are measured: written once by the real 5.3.3 store, kept in the work directory."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.interop.oracle import compiled, java

from .measure import python, run

VERSION = "5.3.3"
#: name → (mean body in bytes, size of the log in GiB)
STORES: dict[str, tuple[int, float]] = {
    "1g-1k": (1000, 1),
    "1g-100": (100, 1),
    "3g-100": (100, 3),
    "1g-4k": (4000, 1),
    "4g-1k": (1000, 4),
    "64m-1k": (1000, 1 / 16),
    "256m-1k": (1000, 1 / 4),
}
_SOURCE = Path(__file__).resolve().parent / "java" / "StoreBench.java"


def store_bench(mode: str, *options: str, version: str = VERSION) -> dict[str, str]:
    """Run the Java side: its result line, or of several the best of each figure."""
    flags = java(version, compiled(version, [_SOURCE]), "-Xms1g", heap="2g", quick=False)
    cost = run([*flags, "StoreBench", mode, *options, f"start={time.time():.6f}"])
    lines = [line.split()[1:] for line in cost.output.splitlines() if line.startswith("R ")]
    rows = [dict(pair.split("=", 1) for pair in line) for line in lines]
    best = dict(rows[0])
    for row in rows[1:]:
        for name, value in row.items():
            choose = max if name.endswith("_per_s") else min
            best[name] = choose(best[name], value, key=float)
    return best


def make(work: Path, name: str) -> Path:
    """The store of that name under `work`; written where it is not there yet."""
    root = work / name
    if not root.exists():
        body, gib = STORES[name]
        part = work / f"{name}.part"
        store_bench("gen", f"root={part}", f"body={body}", f"gib={gib}")
        # The store classes write no configuration, but a broker does: without it a store is not in order.
        # 1: the settings that topics had are lost.
        run([*python("-m", "mqstore", "repair", part), "--config", "--apply", "--yes", "-q"], codes=(0, 1))
        shutil.rmtree(part / ".mqstore")
        part.rename(root)
    return root


def log_files(root: Path) -> list[Path]:
    """The commit log files of a store, in order."""
    return sorted((root / "commitlog").iterdir())
