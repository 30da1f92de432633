"""`mqstore get --follow`: print new messages as they arrive."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..store.errors import Unsupported
from ..store.search.follow import Follower
from ..store.search.log_search import found_in, note_bounds, time_bounds
from ..store.search.selection import Selection, TimeRange
from ..store.search.store import FoundMessage, StoreReader, Via
from .get_answer import GetQuestion, print_found
from .options import Common, countable
from .output import Output
from .searched_text import check_log


def follow_log(path: Path, question: GetQuestion, common: Common) -> None:
    """Print new messages until the limit, Ctrl-C or a closed pipe.

    Raises InvalidInput, Unsupported, Unreadable, BrokenPipeError; Missing, Refused if the log is missing.
    """
    selection = question.selection()
    with StoreReader(path, common.config()) as store:
        check_log(store.layout, common)
        if store.layout.dledger is not None:
            raise Unsupported("--follow cannot read DLedger logs", path=store.layout.dledger)
        out = common.open_output(growing=True)
        found = _messages(store, selection, common, out, earlier=question.conditions.since is not None)
        print_found(store, islice(found, countable(question.printing.limit)), question, common, out)


def _messages(
    store: StoreReader, selection: Selection, common: Common, out: Output, *, earlier: bool
) -> Iterator[FoundMessage]:
    """Wait for new messages without end, and yield the selected ones. earlier: also those from `--since` on."""
    start = store.log_end.position
    if earlier:  # what is stored later is read, whatever its time
        bounds = time_bounds(store, TimeRange(selection.times.since_ms))
        note_bounds([bounds], common.warn)
        start = bounds.start

    def idle() -> None:
        out.flush()
        _check_reader(common)

    selection = selection.of_queues(store.layout)
    follower = Follower(store.layout, start, common.warn)
    for batch in follower.batches(idle):
        yield from found_in(selection.wanted(batch), Via.SCAN)


def _check_reader(common: Common) -> None:
    """End at once if nobody reads the pipe any more. Raises BrokenPipeError."""
    if common.output is not None or sys.stdout is None:
        return
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        events = poll.poll(0)
    except (OSError, ValueError):
        return
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in events):
        raise BrokenPipeError
