"""`mqstore undo`: take back a recovery, a repair or a move of offsets, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .change_options import ChangeOptions, agree, can_ask, files_of
from .declared import Argument, Option, bad_parameter
from .options import Common, keep_journal_in, shared
from .record_types import columns_of
from .terminal import escape, page_of, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.disk.files import Files
    from ..store.disk.layout import Layout
    from ..store.session.journal import Journal

_SHOWN = 3
"""Number of files that the text names."""


@shared()
def undo(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    session: Annotated[str | None, Argument(metavar="SESSION", help="The session (default: the newest).")] = None,
    list_: Annotated[bool, Option("--list", "-l", help="List the sessions.")] = False,
    purge: Annotated[bool, Option("--purge", help="Delete what SESSION kept; it cannot be undone afterwards.")] = False,
    force: Annotated[bool, Option("--force", help="Undo even if the store has changed since.")] = False,
    journal: Annotated[
        Path | None, Option("--journal", metavar="DIR", help="Where the session is kept (DIR of `recover --journal`).")
    ] = None,
    *,
    writing: ChangeOptions,
    common: Common,
) -> None:
    """Take back what `recover`, `repair` or `offsets` did: bytes, times and names of every file as they were.

    Checksums prove the kept originals before any file is changed, and prove the restored files afterwards. If the
    store has changed since (a broker ran, or messages were put), undo refuses. With --force it goes ahead, brings back
    the bytes and files that were replaced, and does not check the rest: later messages may be lost, so run mqstore
    verify before a broker. If undo is interrupted, run it again. Nothing is deleted before --purge.

    Exit code: 0 taken back; 1 nothing to undo; 4 in use; 5 the store has changed, or cannot be read.

    \b
    Examples:
      mqstore undo /data/store --list
      mqstore undo /data/store
      mqstore undo /data/store 20261121T031500.123456Z --yes
      mqstore undo /data/store 20261121T031500.123456Z --purge
    """
    from ..store.disk.layout import Layout

    layout = Layout.open(store, common.config())
    if journal is not None:
        keep_journal_in(layout, journal)
    if list_:
        if session is not None:
            raise bad_parameter("--list shows every session: it takes no SESSION")
        if purge or force:
            raise bad_parameter(f"--list and {'--purge' if purge else '--force'} cannot be combined")
        _list(layout, common)
        return
    if purge and session is None:
        raise bad_parameter("--purge needs a SESSION")
    if purge and force:
        raise bad_parameter("--purge and --force cannot be combined")
    if not writing.yes and not can_ask():
        raise bad_parameter("without a terminal undo needs --yes")
    out = common.checked_output("purged" if purge else "undone")
    files = files_of(layout, writing.follow_links)
    record = (
        _purge(layout, session or "", writing.yes, files, common)
        if purge
        else _undo(layout, session, force, writing, files, common)
    )
    done = f"what session {record['session']} kept was deleted" if purge else "the change was taken back"
    out.note_done(done)
    with out:
        out.record(record, text=_TEXTS[record["type"]])


def _list(layout: Layout, common: Common) -> None:
    from ..store.counted import bytes_text, counted
    from ..store.session.undo import list_sessions, sessions_elsewhere

    def line(record: Mapping[str, Any]) -> str:
        return (
            f"{escape(record['session'])}  {time_text(record['began'], common.utc)}"
            f"  {record['command'] or 'unknown'}, {record['state']}:"
            f" {counted(record['changes'], 'change')} in"
            f" {counted(record['files'], 'file')}, {bytes_text(record['kept_bytes'])} kept"
        )

    rows = [
        {
            "type": "session",
            "session": each.name,
            "command": each.command,
            "state": each.state.value,
            "began": each.began_ms,
            "changes": each.steps,
            "files": each.files,
            "kept_bytes": each.kept_bytes,
        }
        for each in list_sessions(layout)
    ]
    with common.open_output() as out:
        out.records(rows, text=line, columns=columns_of("session"))
    if not rows:
        elsewhere = sessions_elsewhere(layout)
        common.warn(f"no sessions: {layout.root}{f'; {elsewhere}' if elsewhere else ''}")


def _undo(
    layout: Layout, name: str | None, force: bool, writing: ChangeOptions, files: Files, common: Common
) -> dict[str, Any]:
    """Ask, and take back the session. Raises NotFound, Refused, and what `undo` raises."""
    from ..store.counted import counted
    from ..store.session import undo as undoing
    from ..store.session.journal import barriers

    journal = undoing.session_to_undo(layout, name)
    if not writing.yes and journal is not None:
        changes = counted(len(journal.steps), "change")
        what = f"Take back {journal.command} {journal.session}, {changes}?"
        agree(what, _changes_text(layout, journal, common), common)
    elif not writing.yes:
        lines = [f"  {path}" for path in barriers(layout)]
        plan = "An interrupted recovery has left a start barrier, which keeps brokers from starting:"
        agree("Remove it?", page_of([plan, *lines]), common)
    done = undoing.undo(layout, journal, files, force=force, wait_seconds=writing.wait)
    return {
        "type": "undone",
        "session": done.session,
        "command": done.command,
        "changes": done.steps,
        "files": done.files,
        "resumed": done.resumed,
        "forced": force,
        "new_times": list(done.new_times),
    }


def _purge(layout: Layout, name: str, yes: bool, files: Files, common: Common) -> dict[str, Any]:
    from ..store.session.undo import folders_of, journal_to_purge, purge

    journal = journal_to_purge(layout, name)
    if not yes:
        folders = [f"  {path}" for path in sorted(folders_of(journal)) if path.is_dir()]
        plan = "These folders with the original bytes of the store's files are deleted:"
        agree(f"Delete what session {name} kept? It cannot be undone afterwards.", page_of([plan, *folders]), common)
    freed = purge(layout, journal, files)
    return {"type": "purged", "session": name, "freed_bytes": freed}


def _changes_text(layout: Layout, journal: Journal, common: Common) -> str:
    """What a session changed, in order, one line each."""
    from .plan_text import ROWS, folded, steps_text

    steps = steps_text(journal.steps, layout, one_by_one=True)
    rows = None if common.verbose else ROWS
    return page_of(["These changes are taken back:", *folded(steps, rows)])


def _undone_text(record: Mapping[str, Any]) -> str:
    from ..store.counted import counted

    if not record["session"]:
        return "Removed: the start barrier of a recovery that was interrupted before it changed anything."
    again = " (after an interruption)" if record["resumed"] else ""
    new_times = [escape(path) for path in record["new_times"]]
    result = f"every byte{' and' if new_times else ', time and'} name is as it was before."
    if record["forced"]:
        result = "the bytes that these changes replaced are back; other bytes were not checked."
    changes = f"{counted(record['changes'], 'change')} in {counted(record['files'], 'file')}"
    what = f"{record['command']} {escape(record['session'])}"
    return f"Taken back{again}: {what}, {changes}; {result}{_times_text(new_times)}"


def _times_text(new_times: list[str]) -> str:
    from ..store.counted import counted, listed

    if not new_times:
        return ""
    have = counted(len(new_times), "file has", "files have")
    return f"\n{have} a new modification time: {listed(new_times, _SHOWN)}."


def _purged_text(record: Mapping[str, Any]) -> str:
    from ..store.counted import bytes_text

    return f"Deleted: what {escape(record['session'])} kept, {bytes_text(record['freed_bytes'])}."


_TEXTS = {"undone": _undone_text, "purged": _purged_text}
