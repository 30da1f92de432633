"""`mqstore recover --role slave`: show what a new master would make a slave cut off."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..store.counted import counted
from .declared import Exit, Options, bad_parameter, option
from .exit_codes import ExitCode
from .options import Common
from .terminal import page_of

if TYPE_CHECKING:
    from ..store.disk.layout import Layout


BrokerRole = StrEnum("BrokerRole", "SLAVE")
"""The role of a broker that will start on the store."""


class SlaveOptions(Options):
    role: BrokerRole | None = option(
        "--role", help="slave: say what a new master would make this slave cut off (needs --epoch)."
    )
    epoch: Path | None = option(
        "--epoch", metavar="FILE", help="The master's epochFileCheckpoint; or its store, whose log is compared."
    )


def print_cut(layout: Layout, asked: SlaveOptions, common: Common) -> NoReturn:
    """Print what is cut off. Raises Exit, BadParameter, and what `slave_cut` raises."""
    from ..store.recover.predict import slave_cut

    if asked.role is None or asked.epoch is None:
        raise bad_parameter("--role slave and --epoch FILE need each other")
    log = layout.commit_log_files()
    with common.reading("reading the log", log) as tell:
        found = slave_cut(layout, asked.epoch, tell)
    if asked.epoch.is_dir():
        from ..store.compare.logs import with_logs_compared
        from ..store.disk.layout import Layout

        master = Layout.open(asked.epoch)
        with common.progress("comparing", log.size + master.commit_log_files().size) as progress:
            found = with_logs_compared(found, master, progress.advance)
    unsure = found.outcome == "refuses" or (found.outcome == "unchecked" and not found.compared)
    bad = unsure or bool(found.lost.messages) or found.differs_at is not None
    with common.open_output() as out:
        out.record(found.to_json(), text=_text)
    raise Exit(ExitCode.NO if bad else ExitCode.DONE)


def _text(record: Mapping[str, Any]) -> str:
    position, end = f"{record['position']:,}", f"{record['log_end']:,}"
    lost = sum(row["messages"] for row in record["lost"])
    gone = counted(lost, "message", form=",")
    first = {
        "same": "Nothing is cut off"
        + (
            f", since by the epochs both logs are the same up to {end}, the end of this one."
            if record["differs_at"] is not None or not record["compared"]
            else f": both logs are the same up to {end}, the end of this one."
        ),
        "copies": "Nothing is cut off: the slave's log is empty, and it asks for the whole log.",
        "unchecked": f"The slave compares nothing: without epochs it takes all that the master has behind {end}."
        + (
            " If the logs differ before, it breaks there: bring its own epochFileCheckpoint back, or start with no log."
            if not record["compared"]
            else " Before, both logs are the same."
            if record["differs_at"] is None
            else ""
        ),
        "cuts": f"The slave cuts its log at {position} (it ends at {end}) and loses {gone}.",
        "refuses": "The slave never follows: "
        + (
            "no epoch starts at the same position in both files."
            if record["position"] < 0
            else f"its log ends at {end}, before {position}, where its last common epoch ends."
            if record["position"] > record["log_end"]
            else f"no record starts at {position}, where its log must be cut."
        ),
    }[record["outcome"]]
    own = "no epoch" if record["last_epoch"] is None else f"epoch {record['last_epoch']}"
    epochs = f"{own} here, {record['master_epoch']} at the master"
    if (differs_at := record["differs_at"]) is not None:
        differ = f"the logs first differ at {differs_at:,}"
        refuses = record["outcome"] == "refuses"
        first += f" Besides, {differ}" if refuses else f" But {differ}, and it keeps what it has there"
        first += ". Verify both: if one is damaged there, recover it with --replica and the other;"
        first += " else start the slave with no log."
    rows = [f"  {row['messages']:>9,} of {row['topic']}/{row['queue_id']}" for row in record["lost"]]
    return page_of([first, f"  {epochs} (by source: {record['by_source']})", *rows])
