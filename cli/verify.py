"""`mqstore verify`: check the invariants of a store and report all findings."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Argument, Exit, Option, Options, bad_parameter, flag, option
from .exit_codes import ExitCode, exit_code_of, exit_code_of_status, explanation
from .options import FOUND, Common, say, shared
from .record_types import columns_of
from .selection_options import Since
from .terminal import page_of

if TYPE_CHECKING:
    from ..store.findings.next_commands import Given
    from ..store.verify.verdict import Verdict


VerifyFormat = StrEnum("VerifyFormat", "TEXT JSON NDJSON CSV PROMETHEUS")
"""Output format of findings."""


def parse_percent(text: str) -> float:
    """The number for `10` or `10%`. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)%?", str(text).strip())
    if match is None or not 0 < float(match[1]) <= 100:
        raise bad_parameter(f"{text!r} is not a percentage such as 10% or 0.5%")
    return float(match[1])


_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds for `90`, `90s`, `10m`, `2h`. Raises BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhd])?", str(text).strip())
    if match is None:
        raise bad_parameter(f"{text!r} is not a duration such as 90s, 10m or 2h")
    return float(match[1]) * _SECONDS[match[2] or ""]


Asked = dict[str, Any]
"""Fields of a `Scope` that the command line gives; no module of the checks is imported for them."""


class VerifyOptions(Options):
    quick: bool = flag("--quick/--deep", help="quick: only structure and ends, no CRC; deep: everything (the default).")
    sample: float | None = option(
        "--sample", metavar="P%", parser=parse_percent, help="Read this share of the log; each run takes other parts."
    )
    max_duration: float | None = option(
        "--max-duration",
        metavar="TIME",
        parser=parse_duration,
        help="Stop reading after 90s, 10m, 2h, … and report the findings so far.",
    )
    since: Since = None
    topic: str | None = option("--topic", "-t", metavar="T", help="Only queues and files of this topic.")
    queue: int | None = option("--queue", metavar="Q", min=0, help="Only this queue of the topic.")
    only: str | None = option(
        "--only",
        metavar="GROUP,…",
        help="Only these groups of checks: layout, commit_log, consume_queue, index, checkpoint,"
        " timer, config, compaction, start.",
    )

    def asked(self, broker_version: str | None) -> Asked:
        """The options as fields of a scope. Raises BadParameter, InvalidInput."""
        if self.queue is not None and self.topic is None:
            raise bad_parameter("--queue needs --topic")
        since_ms = None
        if self.since is not None:
            from ..store.search.selection import parse_range

            since_ms = parse_range(self.since, None).since_ms
        return Asked(
            quick=self.quick,
            topic=self.topic,
            queue_id=self.queue,
            groups=groups_of(self.only),
            since_ms=since_ms,
            sample_percent=self.sample,
            max_duration_s=self.max_duration,
            broker_version=broker_version,
        )

    def lasting(self, broker_version: str | None) -> dict[str, Any]:
        """The options that a resumed run must have in common with the earlier ones."""
        return {
            "quick": self.quick,
            "topic": self.topic,
            "queue": self.queue,
            "only": sorted(groups_of(self.only) or ()),
            "sample": self.sample,
            "broker_version": broker_version,
        }


@shared(VerifyFormat, unread=FOUND)
def verify(
    paths: Annotated[list[Path], Argument(metavar="PATH...", help="Stores, or parts of them.")],
    *,
    limits: VerifyOptions,
    resume: Annotated[
        Path | None,
        Option(
            "--resume", metavar="FILE", help="Save the progress of an interrupted run in FILE, and continue from there."
        ),
    ] = None,
    broker_version: BrokerVersion = None,
    common: Common,
) -> None:
    """Check every invariant of a store and report each that does not hold. Writes nothing.

    Log, queues, index, checkpoint, timer and configuration are checked, each for itself and against the others, in
    both directions. A finding says what is wrong and where, what a broker does about it, and the next command.
    `mqstore explain CODE` tells more. Parts that were not checked are named.

    A running broker's store can be checked: verify stops where the log ended when verify started. --topic and
    --queue skip other queues with their index and configuration, but not the log. Ctrl-C ends the check and shows
    the findings so far. --jobs 2 checks the log in a second process.

    If PATH is a directory or file inside a store, only findings about PATH are reported and decide the exit code;
    the rest of the store is still read.

    Exit code: 0 clean; 1 damaged; 3 not shut down cleanly, nothing else; 5 cannot be read; 130 interrupted.

    \b
    Examples:
      mqstore verify /data/store
      mqstore verify /data/store --format json | jq '.[] | select(.type == "summary")'
      mqstore verify /data/store-* --quick
      mqstore verify /data/store/consumequeue/orders/3
      mqstore verify /data/store --rate 200M --max-duration 1h --resume /var/tmp/verify.json
      mqstore verify /data/store --format prometheus -o /var/lib/node_exporter/mqstore.prom
    """
    if resume is not None and len(paths) > 1:
        raise bad_parameter("--resume: name one store only")
    paths = _each_once(paths)
    asked = limits.asked(broker_version)
    warn_of_nearest_version(broker_version, common)
    saved = None
    if resume is not None:
        from .verify_resume import Resume

        saved = Resume.read(resume, paths[0], limits.lasting(broker_version))
        asked |= {"start": saved.position, "earlier": saved.facts}
    failed: list[Path] = []
    codes = [ExitCode.DONE]
    with _stopping() as stop:

        def verdicts() -> Iterator[tuple[Path, Verdict]]:
            for path in paths if not stop else ():
                try:
                    store, verdict = _verdict(path, asked, resume, common, stop)
                except Exception as error:
                    if len(paths) == 1:
                        raise
                    text = explanation(error)
                    say(text if str(path) in text else f"{path}: {text}")
                    codes.append(exit_code_of(error))
                    if codes[-1] is ExitCode.FAILED:
                        failed.append(path)
                    continue
                if saved is not None:
                    verdict = saved.joined(verdict)
                    saved.write(verdict)
                _tell(path, verdict, resume, common, whole=store == path)
                codes.append(exit_code_of_status(verdict.status))
                yield store, verdict
                if stop:
                    return

        print_verdicts(verdicts(), common, common.given(broker_version), quick=limits.quick, failed=failed)
    raise Exit(max(codes, key=WORST.index) if not stop else ExitCode.INTERRUPTED)


def _each_once(paths: list[Path]) -> list[Path]:
    """The paths in their order, each store once: patterns may overlap."""
    found: dict[str, Path] = {}
    for path in paths:
        found.setdefault(os.path.realpath(path), path)
    return list(found.values())


WORST = (
    *(ExitCode.DONE, ExitCode.UNCLEAN, ExitCode.NO),
    *(ExitCode.IN_USE, ExitCode.USAGE, ExitCode.FAILED, ExitCode.INTERRUPTED),
)


def groups_of(only: str | None) -> frozenset[str] | None:
    """The groups of checks that `--only` names, None without `--only`. Raises BadParameter."""
    from ..store.findings.catalogue import GROUPS

    groups = None if only is None else frozenset(g.strip() for g in only.split(","))
    if groups is not None and (unknown := sorted(groups - set(GROUPS))):
        raise bad_parameter(f"--only: no group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    return groups


@contextmanager
def _stopping() -> Iterator[list[bool]]:
    """Yield a list that gets an element when Ctrl-C is pressed; the second Ctrl-C ends the command at once."""
    pressed: list[bool] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _verdict(path: Path, asked: Asked, resume: Path | None, common: Common, stop: list[bool]) -> tuple[Path, Verdict]:
    """The root of the store that `path` is or lies in, and the verdict about `path`."""
    from ..store.errors import InvalidInput
    from .verify_part import part_of

    part = part_of(path, common.config())
    if part is None:
        return path, _verify(path, asked, common, stop)
    for name, given in (
        ("--only", asked["groups"] is not None),
        ("--topic", asked["topic"] is not None),
        ("--resume", resume is not None),
        ("--format prometheus", common.format.value == VerifyFormat.PROMETHEUS),
    ):
        if given:
            hint = f"name the store {part.root}"
            raise InvalidInput(f"{name} needs a whole store, not a part of it", path=path, hint=hint)
    # run all groups of checks: some need results of checks of another group
    inside = {**asked, "topic": part.topic, "queue_id": part.queue_id}
    return part.root, part.of(_verify(part.root, inside, common, stop))


def _verify(path: Path, asked: Asked, common: Common, stop: list[bool]) -> Verdict:
    from ..store.search.store import StoreReader
    from ..store.settings.options import options_of

    with StoreReader(path, common.config()) as store:
        if asked["topic"] is not None:
            from ..store.verify.run import check_topic

            check_topic(store, asked["topic"], asked["queue_id"])
        for note in options_of(store.layout).notes():
            common.warn(f"{path}: {note}")
        from ..store.verify.context import Scope
        from ..store.verify.run import verify  # imports numpy and all checks: after the quick refusals
        from ..store.verify.verdict import Status

        with common.reading("checking the log", store.log_files) as tell:
            scope = Scope(**asked)
            verdict = verify(store, scope, progress=tell, stop=lambda: bool(stop), jobs=common.jobs or 1)
        if verdict.status is not Status.DAMAGED:
            return verdict
        from ..store.repair.recheck import with_open_repairs  # imports everything that makes plans

        with common.reading("checking the log", store.log_files) as tell, suppress(KeyboardInterrupt):
            advance = partial(_advance, tell, stop)
            return with_open_repairs(verdict, store.layout, asked["broker_version"], advance)
        return verdict


def _advance(tell: Callable[[int], None], stop: list[bool], position: int) -> None:
    """Report the position. Raises KeyboardInterrupt after Ctrl-C, to end the check with the findings so far."""
    if stop:
        raise KeyboardInterrupt
    tell(position)


def _tell(path: Path, verdict: Verdict, resume: Path | None, common: Common, *, whole: bool) -> None:
    """Print remarks on stderr. whole: the path is a store, not a part of one."""
    if verdict.stopped_at is not None:
        later = "; with --resume FILE a later run could continue" if whole else ""
        later = "; run the same command again to continue" if resume is not None else later
        common.warn(f"{path}: not finished{later}")
    if verdict.live:
        common.explain(f"{path}: a process writes to it; verify checked it up to where the log ended at the start")


def print_verdicts(
    verdicts: Iterable[tuple[Path | str, Verdict]],
    common: Common,
    given: Given,
    *,
    quick: bool,
    failed: Iterable[Path | str],
    brief: bool = False,
) -> None:
    """Print verdicts in the format that is asked for. given: options that proposed commands repeat. quick: whether the
    checks were quick ones. brief: a line per store in a text. failed: stores that cannot be read, for metrics; iterated
    after the last verdict. Raises as `Output.check`, before it asks for the first verdict.
    """
    common.open_output().check(COLUMNS)
    if common.format.value == VerifyFormat.PROMETHEUS:
        from .prometheus import write_metrics

        write_metrics(verdicts, common, quick=quick, failed=failed)
        return
    with common.open_output() as out:
        if common.format.value == VerifyFormat.TEXT and common.fields is None:
            from .verify_text import folded, page, verdict_line

            for path, verdict in verdicts:
                if brief and not common.verbose:
                    text = page_of([verdict_line(path, verdict)])
                else:
                    text = page(path, verdict, _at(path, given, common), verbose=common.verbose)
                if out.on_terminal:
                    from shutil import get_terminal_size

                    text = folded(text, get_terminal_size().columns)
                out.record(
                    summary_json(path, verdict),
                    text=lambda _, text=text: text,  # type: ignore[misc]
                    verdict=exit_code_of_status(verdict.status),
                )
            return
        out.records(
            (row for path, verdict in verdicts for row in _rows(path, verdict, _at(path, given, common))),
            text=str,
            columns=COLUMNS,
        )


def _at(path: Path | str, given: Given, common: Common) -> Given:
    """The options that a proposed command for this store repeats."""
    from ..store.disk.layout import Layout, is_uri
    from ..store.errors import StoreError

    if is_uri(str(path)):
        return given
    try:
        return given.at(Layout.of(path, common.config()))
    except StoreError:  # the store is gone by now, or on another machine: the verdict stays valid
        return given


def _rows(path: Path | str, verdict: Verdict, given: Given) -> Iterator[dict[str, Any]]:
    from ..store.verify.verdict import findings_json

    yield from findings_json(verdict, path, given)
    yield summary_json(path, verdict)


COLUMNS = columns_of("finding", "summary")


def summary_json(path: Path | str, verdict: Verdict) -> dict[str, Any]:
    """The verdict as a JSON object. complete: whether everything was checked."""
    from ..store.findings.catalogue import Severity

    counts = {level.label: 0 for level in reversed(Severity)}
    for finding in verdict.findings:
        counts[finding.severity.label] += 1
    return {
        "type": "summary",
        "store": str(path),
        **({} if verdict.part is None else {"path": str(verdict.part)}),
        "status": verdict.status.value,
        **counts,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "seconds": round(verdict.seconds, 3),
        "complete": not verdict.unread,
        "live": verdict.live,
        "interrupted": verdict.stopped_at is not None,
        "unread": verdict.unread,
    }
