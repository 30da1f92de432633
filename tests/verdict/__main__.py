"""The long run of the matrix, in parts that may run at once; then the page.

    MQSTORE_SEED=7 python -m tests.verdict run random 0 2000 --rows random.json
    python -m tests.verdict run stores 0 112 --rows stores.json
    python -m tests.verdict page *.json

A part is a kind of walk (random, today, dledger, mixed, cut, stores, scenarios, invariants, cases) and numbers
of it. Each line that is wrong is printed when it is met; exit code 1 with any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mqstore.store.damage.scenarios import scenarios

from .. import recovery_cases, slices, stores
from ..store.verify.mutations import mutations
from . import matrix, walks

_CHANCE = {
    "random": walks.check_random,
    "today": walks.check_today,
    "dledger": walks.check_dledger,
    "mixed": walks.check_mixed,
    "cut": walks.check_cut,
}
_KINDS = (*_CHANCE, "stores", "scenarios", "invariants", "cases")
_MOST = 1_000_000
_STEP = 50


def _walks(kind: str) -> list[Callable[[Path], list[str]]]:
    """The walks of a kind, in the order of their numbers."""
    if kind in _CHANCE:
        return [partial(_CHANCE[kind], number) for number in range(_MOST)]
    if kind == "stores":
        return [partial(walks.check_store, name) for name in stores.ALL]
    if kind == "scenarios":
        every = [(name, each) for name in walks.SCENARIO_STORES for each in scenarios().values()]
        return [partial(walks.check_scenario, *each) for each in every]
    if kind == "invariants":
        return [partial(walks.check_mutation, each) for each in mutations().values()]
    pool = [*recovery_cases.all_cases(), *recovery_cases.all_feature_cases()]
    slices.rng("verdict cases").shuffle(pool)
    return [partial(walks.check_case, case) for case in pool]


def run(kind: str, begin: int, end: int, rows: Path) -> int:
    """Walk over the stores [begin, end) of a kind: how many lines were wrong."""
    wrong = 0
    for number, walk in enumerate(_walks(kind)[begin:end], 1):
        with tempfile.TemporaryDirectory(prefix="verdict") as work:
            found = walk(Path(work))
        wrong += len(found)
        for line in found:
            print("WRONG", line, flush=True)
        if number % _STEP == 0:
            matrix.keep(rows)
            print(f"{kind}: {number} walks, {wrong} lines", flush=True)
    matrix.keep(rows)
    print(f"{kind}, seed {slices.SEED}: done, {wrong} lines", flush=True)
    return wrong


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.verdict")
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("run")
    one.add_argument("kind", choices=_KINDS)
    one.add_argument("begin", type=int)
    one.add_argument("end", type=int)
    one.add_argument("--rows", type=Path, required=True)
    page = commands.add_parser("page")
    page.add_argument("rows", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "run":
        return int(run(given.kind, given.begin, given.end, given.rows) > 0)
    for path in given.rows:
        matrix.add(path)
    matrix.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
