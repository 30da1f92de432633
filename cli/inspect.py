"""`mqstore inspect`: what a store or a file is, how much, from when to when, in what state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .kind_option import Kind
from .options import Common, command_app, shared

app = command_app()


@app.command()
@shared()
def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A store, or a directory or file of one.")
    ],
    kind: Kind = None,
    *,
    common: Common,
) -> None:
    """Describe a store or a file: what it is, how much, from when to when, in what state.

    Of a store: which brokers wrote it and what tells that, file sizes, the log and its times, how
    the last broker ended, what the checkpoint leads to, topics with their queues, index files, and
    whatever does not belong there. Little of a large store is read: the end of its log is found
    from the queues.

    \b
    Examples:
      mqstore inspect /data/store
      mqstore inspect /data/store --format json | jq .exit
      mqstore inspect /data/store/commitlog/00000000001073741824
      mqstore inspect /data/store/consumequeue/orders/0
    """
    from ..store.recognise import STORE, recognise

    what = recognise(path, kind, common.config())
    if what.kind == STORE:
        from ..store.description import describe_path
        from .store_text import store_json, store_text

        description = describe_path(path, common.config())
        record = store_json(description)
        page = store_text(description, common.utc, all_topics=common.verbose)
    else:
        from .file_summary import summary, summary_text

        record = summary(what, common)
        page = summary_text(record, common.utc)
    with common.open_output() as out:
        out.record(record, text=lambda _: page)
