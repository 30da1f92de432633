"""The description of a store, as JSON and as one screen of text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ..store.broker.snapshot import directories_without_files
from ..store.broker.system_topics import LMQ_PREFIX
from ..store.counted import bytes_text, counted
from ..store.disk.sizes import Size
from ..store.findings.next_commands import Given, NextCommand, command, refused
from ..store.index.read import sizes_of
from ..store.inspect.description import Description
from ..store.queues.read import QueueSummary
from ..store.settings.options import BrokerOption
from ..store.verify.verdict import Verdict, commands_of, first_sentence
from .terminal import page_of, time_text
from .verdict_text import verdict_json

TOPICS_SHOWN = 20
_LABEL = 12
_OTHERS_SHOWN = 5
_OF_QUEUE = ("topic", "queue_id", "min_offset", "max_offset")


def store_json(store: Description, verdict: Verdict, given: Given) -> dict[str, Any]:
    """The whole description, by the field names of the JSON."""
    root = store.layout.root
    log, restart, database = store.log, store.restart, store.storage.database
    return {
        "type": "store",
        "path": str(root),
        "broker_version": store.generation.version,
        "broker_version_reason": store.generation.reason,
        "broker_versions": list(store.generation.candidates),
        "exit": store.exit,
        "exit_reason": store.exit_reason,
        "lock_holder": store.holder,
        "log_start": log.start,
        "log_end": log.end,
        "log_end_reason": log.end_reason,
        "first_store_timestamp": log.first_store_timestamp,
        "last_store_timestamp": log.last_store_timestamp,
        "damaged_ranges": log.damaged_ranges,
        "damaged_bytes": log.damaged_bytes,
        "commit_log": {
            "directories": [str(path) for path in log.directories],
            "origin": log.origin,
            "files": log.files,
            "bytes": log.bytes,
        },
        "sizes": {
            name: {"value": size.value, "origin": size.origin}
            for name, size in sizes_of(store.layout)._asdict().items()
        },
        "queues": [{name: getattr(queue, name) for name in _OF_QUEUE} for queue in store.queues],
        "queue_storage": store.storage._asdict() | {"database": database and str(database)},
        "checkpoint": None if store.checkpoint is None else store.checkpoint._asdict(),
        "next_start": restart
        and {"broker_version": restart.version, "start_file": restart.file, "reason": restart.reason},
        "index_files": [
            {"file": i.file, "slots": i.slots, "items": i.items, **i.header._asdict()} for i in store.index_files
        ],
        "config": [found._asdict() for found in store.config],
        "config_form": {
            "form": str(store.config_form.form),
            "sure": store.config_form.sure,
            "databases": {name: path.name for name, path in sorted(store.config_form.databases.items())},
            "others": list(store.config_form.others),
        },
        "parts": [part._asdict() for part in store.parts],
        "foreign_files": [{"path": f.path, "reason": f.reason} for f in store.foreign],
        "options": [option.to_json() for option in store.options],
        "notes": store.notes,
        "verdict": verdict_json(verdict, root),
        "next": [str(step) for step in _next(store, verdict, given)],
    }


def damage_in_log(store: Description) -> str:
    """One line on damage in the part of the log that was read, as `dump` prints it, "" for none."""
    from .file_kinds.chunks import damage_text

    log = store.log
    torn = None if store.exit == "running" else log.torn  # a record that is being written is incomplete
    first = log.first_damage or torn
    if first is None:
        return ""
    ranges, size = log.damaged_ranges + (torn is not None), log.damaged_bytes + (torn.size if torn else 0)
    return damage_text(ranges, size, f"{first.position}: {first.told}")


def _next(store: Description, verdict: Verdict, given: Given) -> list[NextCommand]:
    """The commands to run next: those that mend what was seen, else `verify`, which checks the whole store.

    No command if no plan can be made: the verdict already names what has to be put right.
    """
    root = store.layout.root
    steps = commands_of(verdict, verdict.findings, root, given)
    return steps or ([] if refused(verdict.findings) else [command("verify", root, given=given)])


def store_text(store: Description, verdict: Verdict, given: Given, utc: bool, all_topics: bool) -> str:
    """One screen of text, the verdict first; longer with `all_topics`."""
    sentence = first_sentence(verdict, store.layout.root)
    steps = _next(store, verdict, given)
    first = f"{sentence}. Next: {steps[0]}" if steps else f"{sentence}."
    return page_of([first, "", *_StorePage(store, utc, all_topics).lines()])


class _StorePage:
    def __init__(self, store: Description, utc: bool, all_topics: bool) -> None:
        self._store = store
        self._utc = utc
        self._topics = None if all_topics else TOPICS_SHOWN

    def lines(self) -> Iterator[str]:
        store = self._store
        yield _line("store", str(store.layout.root))
        yield _line("broker", f"{store.generation.told}: {store.generation.reason}")
        yield _line("exit", f"{store.exit}: {store.exit_reason}")
        yield from self._log()
        yield _line("sizes", self._sizes())
        yield from _listed("options", [_option(o) for o in store.options if o.value != o.usual or o.shown])
        yield from self._checkpoint()
        yield from self._index()
        yield from self._queues()
        yield from self._config()
        yield from _listed("parts", [f"{part.part}: {part.text}" for part in store.parts])
        yield from _listed("foreign", [f"{f.path}: {f.reason}" for f in store.foreign])
        for note in store.notes:
            yield _line("note", note)

    def _log(self) -> Iterator[str]:
        log = self._store.log
        files = f"{counted(log.files, 'file')}, {bytes_text(log.bytes)}"
        yield _line("log", f"{log.start} … {log.end}  ({bytes_text(log.end - log.start)}; {files})")
        yield _line("", f"{self._time(log.first_store_timestamp)} … {self._time(log.last_store_timestamp)}")
        yield _line("", f"end: {log.end_reason}")
        if log.damaged_ranges:
            ranges = counted(log.damaged_ranges, "range")
            yield _line("", f"damage: {ranges}, {counted(log.damaged_bytes, 'byte')} (dump shows them)")
        if log.origin != "default":
            bare = directories_without_files(self._store.layout)
            for path in dict.fromkeys([*log.directories, *bare]):
                state = f": {'empty' if path.is_dir() else 'not there'}" if path in bare else ""
                yield _line("", f"in {path} ({log.origin}){state}")

    def _sizes(self) -> str:
        sizes = sizes_of(self._store.layout)
        slots = counted(sizes.index_slots.value, "slot")
        index = f"index {slots}, {counted(sizes.index_items.value, 'item')}"
        parts = [
            f"commit log {_size(sizes.commit_log)}",
            f"consume queue {_size(sizes.consume_queue)}",
            f"{index} ({sizes.index_items.origin})",
        ]
        if self._store.layout.timer_log.exists():
            parts.append(f"timer log {_size(sizes.timer_log)}")
        return ", ".join(parts)

    def _checkpoint(self) -> Iterator[str]:
        point, restart = self._store.checkpoint, self._store.restart
        if point is None:
            yield _line("checkpoint", "none")
        else:
            times = ", ".join(
                f"{name.removesuffix('_msg_timestamp')} {self._time(value)}"
                for name, value in point._asdict().items()
                if name.endswith("_timestamp")
            )
            yield _line("checkpoint", times)
            offsets = [
                f"{name} {value}"
                for name, value in point._asdict().items()
                if not name.endswith("_timestamp") and value
            ]
            if offsets:
                yield _line("", ", ".join(offsets))
        if restart is not None:
            does = f"begins at {restart.file}" if restart.file else "refuses to start"
            yield _line("next start", f"a broker {restart.version} {does}: {restart.reason}")

    def _index(self) -> Iterator[str]:
        files = self._store.index_files
        if not files:
            yield _line("index", "no files")
            return
        items = sum(max(0, file.header.index_count - 1) for file in files)
        yield _line("index", f"{counted(len(files), 'file')}, {counted(items, 'item')}")
        headers = [file.header for file in files if file.header.index_count > 1]
        if headers:
            first, last = headers[0], headers[-1]
            times = f"{self._time(first.begin_timestamp)} … {self._time(last.end_timestamp)}"
            yield _line("", f"{first.begin_physical_offset} … {last.end_physical_offset}, {times}")

    def _queues(self) -> Iterator[str]:
        queues = self._store.queues
        topics = [(topic, list(group)) for topic, group in groupby(queues, lambda q: q.topic)]
        total, again = (
            sum(q.max_offset - q.min_offset for q in queues if q.topic.startswith(LMQ_PREFIX) == is_lmq)
            for is_lmq in (False, True)
        )
        counts = ((len(topics), "topic"), (len(queues), "queue"), (total, "message"))
        once_more = f", named {counted(again, 'time')} more by LMQs" if again else ""
        yield _line("queues", ", ".join(counted(count, thing) for count, thing in counts) + once_more)
        if text := self._storage():
            yield _line("", text)
        shown = topics[: self._topics]
        width = max((len(topic) for topic, _ in shown), default=0)
        for topic, group in shown:
            yield f"  {topic:<{min(width, 50)}}  {_offsets(group)}"
        if len(topics) > len(shown):
            more = counted(len(topics) - len(shown), "more topic")
            yield f"  … and {more} (--verbose shows all)"

    def _storage(self) -> str:
        """Where the queues are, "" if they are in files only."""
        storage = self._store.storage
        if storage.database is None:
            return ""
        name = storage.database.name
        if storage.mode == "rocksdb":
            return f"in the RocksDB {name}"
        both = counted(storage.in_files, "queue"), counted(storage.in_database, "queue")
        return f"hybrid: {both[0]} in files, {both[1]} in the RocksDB in {name}"

    def _form(self) -> str:
        """The databases that are read instead of files of config/, "" for none."""
        form = self._store.config_form
        if not form.databases:
            return ""
        names = ", ".join(sorted({path.name for path in form.databases.values()}))
        text = f"topics, groups and positions are in {form.form}: {names}"
        if form.sure:
            return text
        others = ", ".join(form.others) or "files of JSON"
        return f"{text} (written last); a broker may read {others} instead: only its options say which"

    def _config(self) -> Iterator[str]:
        """A line for all files with entries, then a line for each file that a broker does not accept."""
        from ..store.settings.read import WHOLE, entries_text

        found = self._store.config
        entries = [entries_text(one.entries) for one in found if one.state == WHOLE and one.entries]
        texts = [", ".join(entries)] if entries else []
        texts += [f"{one.file}: {one.text}" for one in found if one.state != WHOLE]
        texts += [text for text in (self._form(),) if text]
        for number, text in enumerate(texts):
            yield _line("" if number else "config", text)

    def _time(self, epoch_ms: int | None) -> str:
        return time_text(epoch_ms, self._utc) if epoch_ms else "never"


def _option(option: BrokerOption[Any]) -> str:
    how = f"{option.origin}: {option.by}" if option.by else option.origin
    if option.shown is not None:
        how = f"{option.origin}; see the note"
    return f"{option.name} {option.text} ({how})"


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _size(size: Size) -> str:
    return f"{size.value} ({size.origin})"


def _offsets(group: list[QueueSummary]) -> str:
    if len(group) == 1:
        (queue,) = group
        return f"queue {queue.queue_id}: {queue.min_offset} … {queue.max_offset}"
    mins = sorted({queue.min_offset for queue in group})
    maxs = sorted({queue.max_offset for queue in group})
    return f"{len(group)} queues: min {_span(mins)}, max {_span(maxs)}"


def _span(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]}-{values[-1]}"


def _listed(label: str, texts: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts[:_OTHERS_SHOWN]):
        yield _line(label if not number else "", text)
    if len(texts) > _OTHERS_SHOWN:
        yield _line("", f"… and {len(texts) - _OTHERS_SHOWN} more")
