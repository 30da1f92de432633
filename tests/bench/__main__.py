"""One command, a table of ratios taken in the same run: ``python -m tests.bench --work DIR``.

The unit *crc* is the CPU time of zlib.crc32 over the same files in a fresh Python. Each figure is
the least of several rounds in which the thing measured and its reference take turns; CPU seconds
unless a row says otherwise. The work directory gets 8 GiB of stores written by the real broker's
store classes (Java and Maven needed), once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .figures import GROUPS, Bench, Figure


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="directory for stores, 8 GiB")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    options = parser.parse_args()
    unknown = set(options.groups) - GROUPS.keys()
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    return options


def _row(figure: Figure) -> str:
    target = f"{figure.sign} {figure.target:g}" if figure.target is not None else ""
    verdict = "" if figure.met is None else "ok" if figure.met else "MISSED"
    limit = "" if figure.limit is None else str(figure.limit)
    return f"{figure.what:<58} {figure.ratio:>9.2f} {target:>8} {verdict:<7} {limit:<27} {figure.note}"


def main() -> int:
    """Measure what was asked for; 1 where a target is missed."""
    options = _arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.work, options.rounds)
    met = True
    print(f"{'figure':<58} {'ratio':>9} {'target':>8} {'':<7} {'limit of the machine':<27}")
    for name in options.groups or GROUPS:
        for figure in GROUPS[name](bench):
            print(_row(figure), flush=True)
            met &= figure.met is not False
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
