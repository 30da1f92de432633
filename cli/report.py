"""`mqstore report`: describe stores on a page of HTML, for people and for a ticket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Argument, Exit, Option, bad_parameter
from .exit_codes import ExitCode, exit_code_of, exit_code_of_status
from .options import FOUND, Common, say, shared
from .record_types import columns_of
from .terminal import page_of, time_text

if TYPE_CHECKING:
    from ..store.report.page import Section, StoreRow


@shared(unread=FOUND)
def report(
    stores: Annotated[list[Path], Argument(metavar="STORE...", help="Root directories of stores.")],
    *,
    to: Annotated[Path, Option("--to", metavar="FILE", help="The page; written completely or not at all.")],
    now: Annotated[str | None, Option("--now", metavar="TIME", help="Show what is due at TIME (default: now).")] = None,
    broker_version: BrokerVersion = None,
    common: Common,
) -> None:
    """Write a page of HTML: what a store is, the verdict on it, and pictures of its content.

    The page starts with the verdict of verify, what the next start of a broker does, and what to do next. Pictures
    follow: the log, file by file, by state, topic and age; records and bytes over time; who fills the disk; queues
    against the log; timers by hour; sizes. Each picture has its numbers below it. Several stores share one page,
    which starts with a table of verdicts.

    The page is one file without scripts; it loads nothing, so you can attach it to a ticket. It shows names of
    topics, groups, queues and files, but no messages. The log is read once, by the same pass as verify. The size of
    the page does not grow with the log.

    Exit code: that of verify: 0 clean; 1 damaged; 3 not shut down cleanly, nothing else; 5 cannot be read, or the
    page cannot be written.

    \b
    Examples:
      mqstore report /data/store --to store.html
      mqstore report /data/store-* --to all.html --utc
      mqstore report /data/store --to store.html --format json | jq -r .[].sentence
    """
    from ..store.output.escaped import require_jinja

    require_jinja("no report")
    _check_outside(to, stores, common.output)
    output = common.checked_output("report")
    warn_of_nearest_version(broker_version, common)
    from ..store.search.selection import parse_time

    now_ms = parse_time("now" if now is None else now)
    codes = [ExitCode.DONE]
    sections = list(_sections(stores, now_ms, broker_version, common, codes))
    _write(sections, now_ms, to, common)
    with output as out:
        rows = [_row(section.row, to) for section in sections]
        text = "{store}: {sentence}; see {to}".format_map
        out.records(rows, text=lambda row: page_of([text(row)]), columns=columns_of("report"))
    from .verify import WORST

    raise Exit(max(codes, key=WORST.index))


def _check_outside(to: Path, stores: list[Path], output: Path | None) -> None:
    """Raises BadParameter, InvalidInput, Missing, OSError if the page cannot be written, or would be in a store."""
    from ..store.errors import Missing
    from .output_file import check_place

    target = Path(os.path.realpath(to))
    if not (to.exists() or target.parent.is_dir()):
        raise Missing("no such directory", path=to.parent, hint="--to: create the directory first")
    if target.is_dir():
        raise bad_parameter(f"--to: name a file, not a directory: {to}")
    if output is not None and target == Path(os.path.realpath(output)):
        raise bad_parameter(f"--to and --output name the same file: {to}")
    for store in stores:
        if target.is_relative_to(os.path.realpath(store)):
            raise bad_parameter(f"--to: name a file outside the store: {to}")
    check_place(to)


def _sections(
    stores: list[Path], now_ms: int, broker_version: str | None, common: Common, codes: list[ExitCode]
) -> Iterator[Section]:
    """Yield the sections of the page. codes: gets the exit code of each store."""
    from ..store.report.page import unreadable

    for number, path in enumerate(stores, 1):
        try:
            section, code = _section(path, number, now_ms, broker_version, common)
        except Exception as error:
            if len(stores) == 1:
                raise
            say(str(error))
            section, code = unreadable(str(path), str(error), number), exit_code_of(error)
        codes.append(code)
        yield section


def _section(
    path: Path, number: int, now_ms: int, broker_version: str | None, common: Common
) -> tuple[Section, ExitCode]:
    from ..store.repair.recheck import with_open_repairs
    from ..store.report.gather import look
    from ..store.report.page import section_of
    from ..store.search.store import StoreReader
    from ..store.verify.context import Scope

    scope = Scope(broker_version=broker_version)
    with StoreReader(path, common.config()) as store:
        given = common.given(broker_version).at(store.layout)
        with common.reading("checking the log", store.log_files) as tell:
            judge = partial(with_open_repairs, layout=store.layout, version=broker_version)
            seen = look(store, scope, given, now_ms=now_ms, progress=tell, jobs=common.jobs or 1, judge=judge)
        section = section_of(seen, number, partial(time_text, utc=common.utc))
    return section, exit_code_of_status(seen.verdict.status)


def _write(sections: list[Section], now_ms: int, to: Path, common: Common) -> None:
    """Write the page completely or not at all. Raises OSError, Unreadable, NoSpace."""
    from .. import __version__
    from ..store.errors import from_os_error
    from ..store.report.page import page_of
    from .output_file import OutputFile

    made = f"Made on {time_text(now_ms, common.utc)} from the files of the store alone."
    file = OutputFile(to)
    try:
        for piece in page_of(sections, __version__, made):
            file.stream.write(piece.encode("utf-8", "backslashreplace"))
        file.finish()
    except BaseException as error:
        file.give_up()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):  # a closed pipe is no error
            raise from_os_error(error, to, "cannot write") from error
        raise


def _row(row: StoreRow, to: Path) -> dict[str, Any]:
    return {
        "type": "report",
        "store": row.root,
        "status": row.status,
        "sentence": row.sentence,
        "records": row.records,
        "bytes": row.bytes,
        "to": str(to),
    }
