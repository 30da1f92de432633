"""`make`: the rows of many cases, each case in a process of its own.

A command keeps what it has read of a file; in a process of its own no case sees what another has left.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .cases import SLICE, Case, build, cases
from .commands import Asked, Row
from .fixed import BEGAN_S, NOW_S
from .normal import digest
from .output import Goldens, Key, Writer, compare, line_of, reasons

_STEP = 50
_DAY_S = 86400


@dataclass(frozen=True)
class Wanted:
    """Which rows: share of the cases, part I of N, one command, a text in their names ("": all).

    every_version: as in `cases`.
    """

    seed: int = 1
    share: float = 1.0
    part: str = "1/1"
    only: str = ""
    like: str = ""
    every_version: bool = False

    def cases(self) -> Iterator[Case]:
        """Those of this part, in the order of all."""
        part, parts = map(int, self.part.split("/"))
        chosen = [
            case
            for case in cases(self.seed, every_version=self.every_version)
            if case.number(self.seed) < self.share and self.like in str(case)
        ]
        yield from chosen[part - 1 :: parts]


def make(folder: Path, wanted: Wanted) -> int:
    """Make the rows and keep them. Exit code: 1 where one process and two do not say the same."""
    begun, rows, bad = time.monotonic(), 0, 0
    work = Path(tempfile.mkdtemp(prefix="goldens"))
    try:
        chosen = list(wanted.cases())
        if len(chosen) > 3:
            rows_of(chosen[0], work, wanted)  # what the commands import is there before it forks
        with Writer(folder, wanted.part.replace("/", "-of-")) as writer:
            for number, case in enumerate(chosen, 1):
                for row in in_a_process(case, work, wanted):
                    rows += 1
                    key = _key(case, row)
                    if row.command.endswith("-equal") and row.text != "equal":
                        bad += 1
                        print(f"ONE PROCESS AND TWO DIFFER {key}", flush=True)
                    writer.add(key, row.text)
                if number % _STEP == 0:
                    passed = time.monotonic() - begun
                    print(f"{number} cases, {rows} rows, {passed:.0f} s", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"done: {rows} rows, {time.monotonic() - begun:.0f} s", flush=True)
    return int(bad > 0)


def check(path: Path, *, rewrite: bool) -> int:
    """Make the rows of the cases in `SLICE` again and compare them with those in a file.

    rewrite: store them instead. Exit code: 1 where one differs, and is not in the list of those that
    do on purpose.
    """
    wanted, found = Wanted(), dict[Key, str]()
    with tempfile.TemporaryDirectory(prefix="goldens") as work:
        for case in cases(wanted.seed):
            if str(case) in SLICE:
                rows = rows_of(case, Path(work), wanted)
                found |= {_key(case, row): digest(row.text) for row in rows}
    if rewrite:
        path.write_text("".join(line_of(*row) for row in found.items()), "utf-8")
        return 0
    told = compare(Goldens(path).rows, found, reasons())
    for key in told.differing:
        print(f"DIFFERS {key}")
    print(f"{told.same} rows are the same, {len(told.differing)} differ")
    return int(bool(told.differing))


def _key(case: Case, row: Row) -> Key:
    return Key(case.store, case.damage, case.version, row.policy, row.command)


def in_a_process(case: Case, work: Path, wanted: Wanted) -> list[Row]:
    """The rows of a case, made by a fork of this process. Raises RuntimeError where that fails."""
    came, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(came)
        _in_child(case, work, wanted, into)
    os.close(into)
    with os.fdopen(came, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"no rows of {case}")
    found: list[Row] = pickle.loads(data)
    return found


def _in_child(case: Case, work: Path, wanted: Wanted, into: int) -> None:
    """The child's whole life."""
    code = 1
    try:
        data = pickle.dumps(rows_of(case, work, wanted))
        with os.fdopen(into, "wb") as pipe:
            pipe.write(data)
        code = 0
    except BaseException:  # noqa: BLE001 (said, and the parent stops)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def rows_of(case: Case, work: Path, wanted: Wanted) -> list[Row]:
    """The rows of a case, made here. None where the store has not what would be damaged."""
    if not (work / "originals" / case.store).exists():
        shutil.rmtree(work, ignore_errors=True)  # one unpacked store at a time
        work.mkdir(parents=True)
    for made in ("salvaged", "rebuilt", "copy"):
        shutil.rmtree(work / made, ignore_errors=True)
    built = build(case, work, wanted.seed)
    if built is None:
        return []
    _hold_times(built.root)
    return list(Asked(case, built, work, wanted.only).rows())


def _hold_times(root: Path) -> None:
    """A file that was made just now gets a time that does not tell when."""
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):  # noqa: PTH118
            if not os.path.islink(path) and os.stat(path).st_mtime > BEGAN_S - 1:  # noqa: PTH114, PTH116
                os.utime(path, (NOW_S - _DAY_S, NOW_S - _DAY_S))
