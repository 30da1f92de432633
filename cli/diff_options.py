"""What `diff` is given and what it answers, in this process and on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..store.counted import counted
from .declared import Argument, Exit, path_text
from .exit_codes import ExitCode
from .options import Common
from .pipeline_options import damage_text
from .unread import tell_unread, unread_text

if TYPE_CHECKING:
    from ..store.arrow.differences import Unsound

_WHAT = "a store, a pattern, or @FILE with one a line."
A = Annotated[str, Argument(metavar="A", parser=path_text, help=f"One side: {_WHAT}")]
B = Annotated[str, Argument(metavar="B", parser=path_text, help=f"The other side: {_WHAT}")]
_COLUMNS = (
    *("type", "store", "topic", "queue_id", "queue_offset", "how"),
    *("only_a", "only_b", "changed"),
)


@dataclass
class Sides:
    """The stores of both sides with the names of their pairs, and the bytes of all their logs."""

    a: Mapping[str, str]
    b: Mapping[str, str]
    bytes: int
    rows: Sequence[Mapping[str, Any]] = ()
    unsound: Unsound | None = None

    def found(self, rows: Sequence[Mapping[str, Any]], unsound: Unsound) -> None:
        """What the comparison says."""
        self.rows, self.unsound = rows, unsound


@contextmanager
def compared(a: str, b: str, partial: bool, common: Common) -> Iterator[Sides]:
    """The stores that are meant, and behind the block the answer.

    Raises Missing, InvalidInput, Exit.
    """
    from ..pipeline.diff import pairs_of
    from ..store.arrow.stores import log_sizes, stores_of

    of_a, of_b, alone = pairs_of(stores_of([a]), stores_of([b]))
    sizes, unread = log_sizes([*of_a, *of_b], common.config())
    gone = {side[root] for side in (of_a, of_b) for root in unread if root in side}
    of_a, of_b = ({r: n for r, n in side.items() if n not in gone} for side in (of_a, of_b))
    left_out = tell_unread(unread, others=bool(of_a), partial=partial)
    for name in alone:
        common.warn(f"{name}: only one side has this store")
    sides = Sides(of_a, of_b, sum(sizes[root] for root in (*of_a, *of_b)))
    yield sides
    _tell(sides.unsound, common)
    with common.open_output() as output:
        found = [{"type": "difference", **row} for row in sides.rows]
        output.records([*found, *left_out], text=_text, columns=_COLUMNS)
    wrong = sides.rows or sides.unsound or alone or left_out
    raise Exit(ExitCode.NO if wrong else ExitCode.DONE)


def _tell(unsound: Unsound | None, common: Common) -> None:
    if unsound is None:
        return
    for lost in unsound.first:
        common.warn(f"not compared: {damage_text(asdict(lost))}")
    for store, (places, size) in unsound.cut.items():
        cut = f"in all {counted(size, 'byte')}, in {counted(places, 'place')}"
        common.warn(f"not compared: {store}: {cut}")
    for store, (bodies, position) in unsound.bodies.items():
        fail = counted(bodies, "body fails its checksum", "bodies fail their checksums")
        common.warn(f"{store}: {fail}, the first at {position}")


def _text(row: Mapping[str, Any]) -> str:
    if row["type"] != "difference":
        return unread_text(row)
    store = f"{row['store']}: " if row["store"] else ""
    first = {"only_a": "only A has it", "only_b": "only B has it", "changed": "it is another one"}
    counts = f"{row['only_a']} only in A, {row['only_b']} only in B, {row['changed']} changed"
    return (
        f"{store}{row['topic']}/{row['queue_id']} from {row['queue_offset']} on"
        f" ({first[row['how']]}): {counts}"
    )
