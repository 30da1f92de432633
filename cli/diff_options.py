"""What `diff` is given and what it answers, in this process and on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from ..store.counted import counted
from .declared import Argument, Exit, Option, Options, bad_parameter, path_text
from .exit_codes import ExitCode
from .options import Common, Format
from .pipeline_options import damage_text
from .unread import Partial, tell_unread

if TYPE_CHECKING:
    from ..store.arrow.differences import Unsound
    from ..store.compare.both import Comparison
    from ..store.compare.logs import Range
    from ..store.disk.broker_conf import BrokerConfig

_WHAT = "a store, a pattern, or @FILE with one a line."
A = Annotated[str, Argument(metavar="A", parser=path_text, help=f"One side: {_WHAT}")]
B = Annotated[str, Argument(metavar="B", parser=path_text, help=f"The other side: {_WHAT}")]
MESSAGES = "messages"
WHAT = (MESSAGES, "log", "queues", "index", "offsets", "config", "timers")
"""What can be compared."""
INDEX = frozenset({"index"})
"""What is compared in this process only, and not quickly."""


def parse_only(text: str) -> frozenset[str]:
    """`log,messages`: some of `WHAT`. Raises BadParameter."""
    found = frozenset(word.strip() for word in text.split(","))
    if unknown := sorted(found - set(WHAT)):
        raise bad_parameter(f"--only: no part {unknown[0]!r}; there are {', '.join(WHAT)}")
    return found


class Looks(Options):
    """How much is compared; the annotations are the declaration of the options."""

    quick: Annotated[
        bool,
        Option("--quick", help="Ends of logs, beginnings of files and samples only, no message."),
    ] = False
    only: Annotated[
        frozenset[str] | None,
        Option("--only", metavar="PART,…", parser=parse_only, help=f"Of {', '.join(WHAT)}."),
    ] = None
    partial: Partial = False

    @property
    def parts(self) -> frozenset[str]:
        """What is compared, of `WHAT`."""
        return frozenset(WHAT) if self.only is None else self.only

    def refuse_nothing(self, left_out: frozenset[str], by: str) -> None:
        """Raises BadParameter where all that --only names is left out by another option."""
        if self.parts <= left_out:
            names = ",".join(sorted(self.parts))
            raise bad_parameter(f"--only {names} with {by}: nothing would be compared")


@dataclass
class Sides:
    """The stores of both sides with the names of their pairs, and the bytes of all their logs. parts: of pairs
    that are here. within: of these, where the logs may differ.
    """

    a: Mapping[str, str]
    b: Mapping[str, str]
    bytes: int
    rows: Sequence[Mapping[str, Any]] = ()
    unsound: Unsound | None = None
    parts: dict[str, Comparison] = field(default_factory=dict)
    within: dict[str, Sequence[Range]] = field(default_factory=dict)

    def compare_parts(
        self,
        config: BrokerConfig,
        note: Callable[[int], None],
        only: frozenset[str],
        *,
        quick: bool,
    ) -> None:
        """Everything but messages, of pairs that are on this machine. only: of `WHAT`. Raises StoreError."""
        if only == {MESSAGES}:
            return
        from ..store.compare.both import compare_stores
        from ..store.disk.layout import is_uri
        from ..store.search.store import Store

        partners = {name: root for root, name in self.b.items()}
        for root, name in self.a.items():
            if is_uri(root) or is_uri(partners[name]):
                continue
            with Store(root, config) as one, Store(partners[name], config) as other:
                found = compare_stores(one, other, only, quick=quick, note=note)
            self.parts[name] = found
            if (apart := found.logs.apart) is not None:
                self.within[name] = apart

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
    for name, part in sides.parts.items():
        for text in part.unread:
            common.warn(f"not compared: {f'{name}: ' if name else ''}{text}")
    from .diff_text import COLUMNS, records, text_of

    with common.open_output() as output:
        found = records(sides, every=_every(common))
        output.records([*found, *left_out], text=text_of, columns=COLUMNS)
    apart = any(not part.same or part.unread for part in sides.parts.values())
    wrong = sides.rows or sides.unsound or alone or left_out or apart
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


def _every(common: Common) -> bool:
    """Lists are for programs, or were asked for."""
    return common.verbose or common.format is not Format.TEXT or common.fields is not None
