"""The options that every command has, and the decorator that gives them to a command.

A command takes them by a parameter `common: Common` and the decorator `shared`:

    @shared()
    def dump(path: Annotated[Path, Argument()], *, common: Common) -> None: ...
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from .declared import REQUIRED, Exit, Format, Option, Options, Parameter, Stopped, bad_parameter, flag, option
from .progress import SCREEN, Progress
from .terminal import colour_wanted, escape, escape_lines

if TYPE_CHECKING:
    from ..store.disk.broker_conf import BrokerConfig, FileRules
    from ..store.disk.file_queue import MappedFileQueue
    from ..store.disk.layout import Layout
    from ..store.errors import UnreadableRange
    from ..store.findings.next_commands import Given
    from .output import Output

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

REFUSED, PASSED_OVER, FOUND = "refused", "passed over", "found"
"""What happens if bytes cannot be read from a disk: the command ends at once, or with an error after its answer, or has
them in its answer.
"""


FORMAT_HELP = "Text is for people, the others are stable."


def parse_bytes(text: str | int) -> int:
    """The number of bytes for `4096`, `64K`, `10MB`, `1GiB`; units are powers of 1024. Raises BadParameter."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?(?:/s)?", str(text).strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise bad_parameter(f"{text!r} is not a number of bytes such as 4096, 64K, 10MB, 1GiB")
    return int(match[1]) << _UNITS[match[2].lower()]


def countable(number: int | None) -> int | None:
    """The number, but at most sys.maxsize, which is the largest that islice and range can count to.

    >>> countable(10), countable(10**30) == sys.maxsize, countable(None)
    (10, True, None)
    """
    return None if number is None else min(number, sys.maxsize)


class Common(Options):
    format: Format = option("--format", default=Format.TEXT, help=FORMAT_HELP)
    fields: str | None = option("--fields", metavar="A,B,C", help="Only these fields, in this order.")
    output: Path | None = option("--output", "-o", metavar="FILE", help="Write data to FILE, not to stdout.")
    quiet: bool = flag("--quiet", "-q", help="Print errors only: no warnings, no progress.")
    verbose: bool = flag("--verbose", "-v", help="Say more, with a traceback for each error.")
    no_color: bool = flag("--no-color", help="No colours; the variable NO_COLOR does the same.")
    utc: bool = flag("--utc", help="Show times in UTC, not in local time (text and CSV).")
    no_progress: bool = flag("--no-progress", help="No progress bar.")
    jobs: int | None = option("--jobs", "-j", metavar="N", min=1, help="Use N cores.")
    rate: int | None = option(
        "--rate",
        metavar="BYTES",
        parser=parse_bytes,
        help="Read at most BYTES per second (64K, 10M, …) and leave the page cache as it was.",
    )
    broker_config: Path | None = option(
        "--broker-config",
        metavar="FILE",
        help="The broker's whole broker.conf: options that it does not name have their default, except file sizes.",
    )
    set: list[str] | None = option(
        "--set", metavar="KEY=VALUE", help="Set a broker property by RocketMQ's name; the last one wins."
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        #: How the broker reads its broker.conf; None if that is not known.
        self.file_rules: FileRules | None = None

    def config(self) -> BrokerConfig:
        from ..store.disk.broker_conf import BrokerConfig

        config = BrokerConfig.from_file(self.broker_config, self.file_rules) if self.broker_config else None
        return (config or BrokerConfig()).with_set(self.set or ())

    def given(
        self, broker_version: str | None = None, journal: Path | None = None, follow_links: bool = False
    ) -> Given:
        """The options about the broker and about writing, which a proposed command repeats."""
        from ..store.findings.next_commands import Given

        config = [word for each in self.set or () for word in ("--set", each)]
        if self.broker_config is not None:
            config = ["--broker-config", str(self.broker_config), *config]
        writing = [] if journal is None else ["--journal", str(journal)]
        writing += ["--follow-links"] if follow_links else []
        return Given(tuple(config), broker_version or "", tuple(writing))

    def open_output(self, *, growing: bool = False, mode: int | None = None) -> Output:
        """The writer of the data, a context manager. growing, mode: see `Output`."""
        from .output import Output

        return Output(
            self.format, self.fields, self.output, no_color=self.no_color, utc=self.utc, growing=growing, mode=mode
        )

    def checked_output(self, *record_types: str) -> Output:
        """A checked writer for the record of a command that changes something before it answers. Raises as
        `Output.check`.
        """
        from .record_types import columns_of

        output = self.open_output()
        output.check(columns_of(*record_types))
        return output

    def progress(self, what: str, total_bytes: int) -> Progress:
        """A progress bar on stderr, a context manager. Shown only on a terminal, not with --quiet or --no-progress."""
        wanted = not (self.quiet or self.no_progress)
        colour = wanted and colour_wanted(sys.stderr, self.no_color)
        return Progress(what, total_bytes, wanted, colour=colour)

    @contextmanager
    def reading(self, what: str, log: MappedFileQueue) -> Iterator[Callable[[int], None]]:
        """A progress bar for reading the files of a log; yields a function that takes the log position reached."""
        with self.progress(what, log.size) as bar:
            yield bar.positions(log.start)

    def warn(self, text: str) -> None:
        """Print a line on stderr, unless `--quiet` is given."""
        if not self.quiet:
            say(text)

    def explain(self, text: str) -> None:
        """Print a line on stderr if `--verbose` is given."""
        if self.verbose and not self.quiet:
            say(text)


def say(text: str) -> None:
    """Print one line on stderr, escaped."""
    SCREEN.tell(f"mqstore: {escape(text)}\n")


def stdin_descriptor() -> int:
    """The descriptor of stdin. Raises Unreadable if the shell has closed it."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, ValueError) as error:
        from ..store.errors import Unreadable

        raise Unreadable("stdin is closed", hint="name a file, or write something to stdin") from error


def keep_journal_in(layout: Layout, directory: Path) -> None:
    """Keep the journal of a store in `--journal DIR`. Raises Missing, Unreadable, and BadParameter for a directory in
    the store or with a broker's own files; a journal that already exists there can still be used.
    """
    from ..store.disk.file_queue import MappedFileQueue
    from ..store.errors import Missing
    from ..store.session.undo import use_journal_of_moved
    from .output_file import is_file_of_store

    if not directory.is_dir():
        raise Missing("no such directory", path=directory)
    place = directory.resolve()
    if any(place.is_relative_to(own.resolve()) for own in (layout.root, *layout.commit_log_directories)):
        raise bad_parameter("--journal: name a directory outside the store")
    layout.keep_journal_in(directory)
    use_journal_of_moved(layout)
    new = not layout.journal.is_dir()
    if new and (is_file_of_store(layout.journal) or MappedFileQueue.open(directory).files):
        raise bad_parameter(f"--journal: {directory} is used by the broker for its own files; name another directory")


def shared(
    formats: type[Enum] = Format, format_help: str = FORMAT_HELP, *, unread: str = REFUSED
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: replace the parameters of a command that are groups of options by these options.

    A group is a class of `Options`: `common: Common`, which every command has, or another class.

    formats: the formats, if not those of `Format`; the first member is the default. format_help: help text of
    `--format`. unread: what to do with bytes that cannot be read.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.cache
        def hints() -> dict[str, Any]:
            return get_type_hints(function, include_extras=True)

        @functools.wraps(function)
        def command(**values: Any) -> None:
            given: dict[str, Any] = {
                name: group(**{n: values.pop(n) for n in group.__annotations__ if n in values})
                for name, group in hints().items()
                if _is_group(group)
            }
            try:
                with _reading(given["common"]), reporting_unreadable(unread, given["common"], values.get("store")):
                    read_as_broker(values, given["common"])
                    check_log_of(values, given["common"])
                    function(**values, **given)
            except KeyboardInterrupt as interrupt:
                raise Stopped from interrupt
            except Exception as error:
                if given["common"].verbose and not isinstance(error, (Exit, BrokenPipeError)):
                    import traceback

                    SCREEN.tell(escape_lines(traceback.format_exc()))
                raise

        @functools.cache
        def parameters() -> list[Parameter]:
            form = Parameter("format", next(iter(formats)), Annotated[formats, Option("--format", help=format_help)])
            return list(_parameters(function, hints(), form))

        command.parameters = parameters  # type: ignore[attr-defined]
        return command

    return decorate


def _stores_in(values: Mapping[str, Any]) -> list[str]:
    """The stores that the arguments of a command name. Raises what `stores_of` raises."""
    named = [values[name] for name in ("store", "stores", "path", "paths", "a", "b") if values.get(name)]
    words = [word for each in named for word in (each if isinstance(each, list) else [each])]
    if not any(isinstance(word, str) for word in words):
        return [os.fspath(word) for word in words]
    from ..store.arrow.stores import stores_of  # a text may be a pattern or a list of stores

    return stores_of(words)


def read_as_broker(values: Mapping[str, Any], common: Common) -> None:
    """Read broker.conf with the rules of `--broker-version`, or of the brokers that may have written the stores. Warn
    of options that the broker does not take as they are written.

    values: arguments of a command. Raises as `Common.config`.
    """
    if common.broker_config is None:
        return
    config, version = common.config(), values.get("broker_version")
    if version is not None:
        from ..store.broker.profiles import file_rules_of

        common.file_rules = file_rules_of(version)
    elif config.unsure or (config.is_unsure_of_log and "broker_version" in values):  # only verdicts go by the latter
        from ..store.disk.layout import Layout, is_uri
        from ..store.errors import StoreError
        from ..store.settings.generation import file_rules_of_any

        stores = list[Layout]()
        for store in _stores_in(values):
            with suppress(StoreError):  # reported when the store is read
                stores += [] if is_uri(store) else [Layout.open(store, config)]
        with suppress(StoreError):
            common.file_rules = file_rules_of_any(stores)
    config = common.config()
    for why in islice(config.untaken.values(), _SHOWN):
        common.warn(f"{common.broker_config}: {why}")
    if "broker_version" in values:
        _warn_of_sizes(values, common, config)


def _warn_of_sizes(values: Mapping[str, Any], common: Common, config: BrokerConfig) -> None:
    """Warn of file sizes that only the files show, not the configuration: a broker would not know them."""
    from ..store.disk.layout import Layout, is_uri
    from ..store.errors import StoreError
    from ..store.settings.generation import unnamed_sizes

    warnings = list[str]()
    with suppress(StoreError):  # reported when the store is read
        for store in _stores_in(values):
            if not is_uri(store) and len(warnings) < _SHOWN:
                warnings += (
                    f"{common.broker_config}: {why} (of {store})" for why in unnamed_sizes(Layout.open(store, config))
                )
    for text in warnings[:_SHOWN]:
        common.warn(text)


def check_log_of(values: Mapping[str, Any], common: Common) -> None:
    """Warn if `storePathCommitLog` names the log of another store, or not the log that brokers read.

    values: arguments of a command. Raises BadParameter if one log would be read as that of several stores.
    """
    if common.broker_config is None and not common.set:
        return
    from ..store.disk.layout import Layout, is_uri
    from ..store.errors import StoreError

    config, layouts = common.config(), dict[str, Layout]()
    if not (config.log_paths or config.unread_log_paths or "storePathRootDir" in config):
        return
    stores, doubts = list[str](), list[str]()
    with suppress(StoreError):  # reported when they are read
        stores = _stores_in(values)
    for store in stores:
        layout = None
        with suppress(StoreError):  # reported when the store is read
            layout = None if is_uri(store) else Layout.of(store, config)
        if layout is not None and layout.is_root:
            layouts[os.path.realpath(store)] = layout
            if layout.unread_log:
                common.warn(f"{store}: {layout.unread_log}")
            elif doubt := config.doubt_about_log(layout.root):
                doubts.append(f"{store}: {doubt}")
    for text in doubts[:_SHOWN]:
        common.warn(text)
    logs = {layout.commit_log_directories for layout in layouts.values()}
    if len(logs) < len(layouts):
        text = "storePathCommitLog names one commit log, which cannot belong to several stores"
        raise bad_parameter(f"{text}; --set storePathCommitLog= ignores it")
    for root, layout in layouts.items():
        if layout.log_of_another is not None:
            common.warn(f"{root}: the configuration names the commit log of another store: {layout.log_of_another}")


def _reading(common: Common) -> AbstractContextManager[None]:
    """Context of a command: files of stores are read at `--rate`."""
    if common.rate is None:
        return nullcontext()
    from ..store.disk.byte_reader import at_rate

    return at_rate(common.rate)


@contextmanager
def reporting_unreadable(unread: str, common: Common, store: Path | None) -> Iterator[None]:
    """Context of a command: report ranges that cannot be read from a disk, and end with an error because of them.
    store: of the command. Raises UnreadableRange: at once if `unread` is REFUSED, else at the end.
    """
    from ..store.counted import counted
    from ..store.disk.byte_reader import expired_text, noting
    from ..store.errors import NotFound, UnreadableRange

    with noting(around=unread != REFUSED) as noted:
        try:
            yield
        except UnreadableRange as error:
            _with_command(error, common, store)
            raise
        except (NotFound, Exit) as error:
            if not noted or unread == FOUND:
                raise
            if isinstance(error, NotFound):
                say(str(error))
        finally:
            for directory, begin in noted.expired.items():
                say(f"{expired_text(begin)}: {directory}")
    ranges = list(noted)
    if ranges:
        for one in ranges[1:_SHOWN]:
            size = counted(one.length, "byte")
            say(f"cannot read {size} ({one.reason}): {one.path} at {one.offset}")
        if len(ranges) > _SHOWN:
            more = counted(len(ranges) - _SHOWN, "range")
            say(f"and {more} more that cannot be read")
        raise _with_command(ranges[0].error(), common, store)


def _with_command(error: UnreadableRange, common: Common, store: Path | None) -> UnreadableRange:
    """Give the error a hint: the command that helps, with the options of this one. Returns the error."""
    from ..store.findings.next_commands import copying_first

    if common.broker_config is not None and error.path == str(common.broker_config):
        error.hint = "restore it, or name its options with --set"
    elif error.path is not None:
        error.hint = copying_first(error.path, common.given(), store)
    return error


_SHOWN = 20
"""Lines about unreadable ranges, about options that no broker takes, and about file sizes."""


def _parameters(function: Callable[..., None], hints: Mapping[str, Any], format: Parameter) -> Iterator[Parameter]:
    """The parameters of a command in its order, with the options of a group in place of the group."""
    code, positional = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = dict(zip(names[code.co_argcount - len(positional) :], positional, strict=False))
    defaults |= function.__kwdefaults__ or {}
    for name in names:
        hint = hints[name]
        if not _is_group(hint):
            yield Parameter(name, defaults.get(name, REQUIRED), hint)
            continue
        for parameter in hint.parameters():
            yield format if hint is Common and parameter.name == format.name else parameter


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Options)
