"""`python -m tests.house move | measure | contracts`."""

from __future__ import annotations

import sys

from . import contracts
from .measure import measure
from .move import move


def main(words: list[str]) -> int:
    """Exit code."""
    if words == ["move"]:
        move()
    elif words == ["contracts"]:
        contracts.write()
    elif words == ["measure"]:
        print(measure())
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
