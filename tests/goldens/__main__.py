"""Make goldens, compare two of them. See the package.

    python -m tests.goldens make DIR [--seed N] [--slice S] [--part I/N] [--only COMMAND] [--like TEXT]
                                  [--every-version]
    python -m tests.goldens compare OLD NEW [--lines N]
    python -m tests.goldens check [--rewrite]

OLD and NEW are folders of `make`, or one file of rows. Exit code 1: something differs, or one process
and two do not say the same. `check` makes the few rows of slice.jsonl again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import fixed


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens")
    commands = parser.add_subparsers(required=True, dest="command")
    made = commands.add_parser("make")
    made.add_argument("folder", type=Path)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--slice", type=float, default=1.0, help="share of the cases")
    made.add_argument("--part", default="1/1", metavar="I/N", help="one of N parts of them")
    made.add_argument("--only", default="", metavar="COMMAND", help="one command, e.g. recover")
    made.add_argument("--like", default="", metavar="TEXT", help="cases with this in their name")
    every = "damaged stores under each broker version, not under one of them"
    made.add_argument("--every-version", action="store_true", help=every)
    two = commands.add_parser("compare")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument("--lines", type=int, default=12, help="of a difference that are shown")
    few = commands.add_parser("check")
    few.add_argument("--rewrite", action="store_true", help="store the rows in slice.jsonl")
    given = parser.parse_args()
    if given.command == "compare":
        from .report import report

        return report(given.old, given.new, given.lines)
    fixed.fix()
    from .make import Wanted, check, make
    from .output import SLICE

    if given.command == "check":
        return check(SLICE, rewrite=given.rewrite)
    wanted = Wanted(given.seed, given.slice, given.part, given.only, given.like, given.every_version)
    return make(given.folder, wanted)


if __name__ == "__main__":
    sys.exit(main())
