"""`mqstore inspect`: describe a store or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .declared import Argument, Options, bad_parameter, flag, option
from .exit_codes import ExitCode, exit_code_of_status
from .kind_option import Kind
from .options import PASSED_OVER, Common, shared

if TYPE_CHECKING:
    from ..store.inspect.recognise import Recognised


class Views(Options):
    delays: bool = flag("--delays", help="Messages that wait in each delay level, and when they fire.")
    timers: bool = flag("--timers", help="Timer messages: when due; delivered, cancelled, lost.")
    retries: bool = flag("--retries", help="Retries and dead letters by group and topic.")
    pop: bool = flag("--pop", help="Messages that POP consumers hold: until when; which came back.")
    transactions: bool = flag("--transactions", help="Prepared messages: open, committed, rolled back.")
    now: str | None = option("--now", metavar="TIME", help="Show what is due at TIME (default: now).")

    @property
    def names(self) -> list[str]:
        flags = (name for name in type(self).__annotations__ if name != "now")
        return [name for name in flags if getattr(self, name)]

    def check(self) -> None:
        """Raises BadParameter for --now without a view."""
        if self.now is not None and not self.names:
            raise bad_parameter("--now needs --delays, --timers, --retries, --pop or --transactions")


@shared(unread=PASSED_OVER)
def inspect(
    path: Annotated[Path, Argument(metavar="PATH", help="A store, or a directory or file of one.")],
    kind: Kind = None,
    *,
    views: Views,
    common: Common,
) -> None:
    """Describe a store or a file: what it is, how much, from when to when, in what state.

    For a store: the broker version that wrote it and the evidence for it, file sizes, the log and its times, how the
    last broker ended, the checkpoint and where the next start begins, topics with their queues, index files, and files
    that do not belong to a store. Of a large store little is read: the queues show where the log ends. Timers and POP
    are shown as a broker that starts at --now would see them.

    \b
    Examples:
      mqstore inspect /data/store
      mqstore inspect /data/store --format json | jq .exit
      mqstore inspect /data/store/commitlog/00000000001073741824
      mqstore inspect /data/store/consumequeue/orders/0
      mqstore inspect /data/store --delays --transactions
      mqstore inspect /data/store --timers --now 2026-12-01T08:00:00Z
      mqstore inspect /data/store --retries --format json | jq .groups
      mqstore inspect /data/store --pop
    """
    from ..store.inspect.recognise import STORE, recognise

    views.check()
    what = recognise(path, kind, common.config())
    if views.names:
        _views(what, views.names, views.now, common)
        return
    code: ExitCode | None = None
    if what.kind == STORE:
        from ..store.disk.layout import Layout
        from ..store.inspect.description import describe
        from ..store.verify.run import at_first_sight
        from .store_text import damage_in_log, store_json, store_text

        description = describe(Layout.open(path, common.config()))
        verdict, given = at_first_sight(description), common.given().at(description.layout)
        code = exit_code_of_status(verdict.status)
        record = store_json(description, verdict, given)
        page = store_text(description, verdict, given, common.utc, all_topics=common.verbose)
        damage = damage_in_log(description)
    else:
        from .file_summary import damage_in, summary, summary_text

        record = summary(what, common)
        page = summary_text(record, common.utc)
        damage = damage_in(record)
    with common.open_output() as out:
        out.record(record, text=lambda _: page, verdict=code)
    if damage:
        common.warn(damage)


def _views(what: Recognised, views: list[str], now: str | None, common: Common) -> None:
    """Print views over the messages of a store. Raises InvalidInput for a path that is not a store."""
    from ..store.errors import InvalidInput
    from ..store.inspect.recognise import STORE
    from ..store.search.selection import parse_time
    from ..store.search.store import StoreReader
    from .views import print_views

    if what.kind != STORE:
        raise InvalidInput(f"--{views[0]} needs a store; this path is of kind {what.kind}", path=what.path)
    now_ms = parse_time("now" if now is None else now)
    with StoreReader(what.path, common.config()) as store:
        print_views(store, views, now_ms, common)
