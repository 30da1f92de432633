"""The options of `diff`, in this process and on Spark."""

from __future__ import annotations

from typing import Annotated

from .declared import Argument, Options, bad_parameter, flag, option, path_text
from .unread import Partial

_WHAT = "a store, a pattern, or @FILE with one per line."
A = Annotated[str, Argument(metavar="A", parser=path_text, help=f"One side: {_WHAT}")]
B = Annotated[str, Argument(metavar="B", parser=path_text, help=f"The other side: {_WHAT}")]
MESSAGES = "messages"
WHAT = (MESSAGES, "log", "queues", "index", "offsets", "config", "timers")
"""The parts that can be compared."""
INDEX = frozenset({"index"})
"""Parts that are compared in this process only, and not with --quick."""


def parse_only(text: str) -> frozenset[str]:
    """The parts named in a text like `log,messages`. Raises BadParameter for a name that is not in `WHAT`."""
    found = frozenset(word.strip() for word in text.split(","))
    if unknown := sorted(found - set(WHAT)):
        raise bad_parameter(f"--only: no part {unknown[0]!r}; there are {', '.join(WHAT)}")
    return found


class DiffOptions(Options):
    """What `diff` compares, and how thoroughly."""

    quick: bool = flag("--quick", help="Compare only ends of logs, beginnings of files and samples, no messages.")
    only: frozenset[str] | None = option(
        "--only", metavar="PART,…", parser=parse_only, help=f"Compare only some of {', '.join(WHAT)}."
    )
    partial: Partial = False

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(WHAT) if self.only is None else self.only

    def refuse_nothing(self, left_out: frozenset[str], by: str) -> None:
        """Raises BadParameter if another option leaves out all parts that --only names. by: that option."""
        if self.parts <= left_out:
            names = ",".join(sorted(self.parts))
            raise bad_parameter(f"--only {names} with {by}: nothing would be compared")
