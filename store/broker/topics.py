"""topics.json, and the JSON of `config/` as fastjson reads and writes it (spec 5.1 to 5.3).

A broker serves only topics that it knows: missing ones are added as a broker would add them, and the other content
stays, unknown keys included. The text is indented with tabs; map keys that are numbers have no quotes and no lines of
their own. Keys keep their order and type, so that reading and writing a file gives the same text.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...formats import topics as formats
from ...formats.config import BACKUP
from ...formats.json_table import DATA_VERSION, STATE_VERSION
from ...formats.message_properties import RETRY_PREFIX
from ..disk.compressed import read_regular
from ..disk.files import Files, write_new
from ..errors import Missing, Refused, StoreError
from .profiles import WriterProfile
from .system_topics import DEAD_LETTER_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIXES, parse_levels

_STRING_OR_NUMBER_KEY = re.compile(
    # an unterminated string ends at the end of the text: no other string begins inside it
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?<=[{,])(\s*)(-?\d+)(?=\s*:)',
    re.DOTALL,
)
_NUMBER_KEY = re.compile(r"[{,]\s*-?\d")
"""A text without a match has no numeric keys, and does not need the substitution."""
_MARK = "\0"
"""Marks a key that had no quotes; fastjson always escapes this character."""
_LARGEST_BYTES = 256 << 20


def loads(text: str) -> Any:
    """Parse JSON; keys without quotes become int. Raises ValueError."""
    return json.loads(with_quoted_keys(text, _MARK), object_pairs_hook=_with_int_keys, strict=False)


def with_quoted_keys(text: str, mark: str = "") -> str:
    """The text with quotes around keys that are numbers, behind the first of them a mark. Raises ValueError."""
    if text.endswith("\0"):  # not JSON; a huge sparse file ends in mebibytes of NULs
        raise ValueError("NULs behind the end")
    if not _NUMBER_KEY.search(text):
        return text
    return _STRING_OR_NUMBER_KEY.sub(lambda m: m[0] if m[2] is None else f'{m[1]}"{mark}{m[2]}"', text)


def _with_int_keys(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {int(key[1:]) if key.startswith(_MARK) else key: value for key, value in pairs}


def read_json(path: Path) -> dict[Any, Any] | None:
    """The members of a JSON file as a broker reads it; None if only a more tolerant reader finds some.

    Raises StoreError if the file cannot be read.
    """
    try:
        found = loads(read_regular(path, _LARGEST_BYTES).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def json_bytes(content: Mapping[Any, Any]) -> bytes:
    """The text of a file as a broker writes it, the inverse of `read_json`. Bytes that are not UTF-8 stay unchanged."""
    text = dumps(content)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape but UTF-8 cannot encode
        return text.encode("utf-8", "surrogatepass")


def dumps(value: Any) -> str:
    """The JSON text of a value, without a line break at its end.

    >>> dumps({"offsetTable": {0: 12}, "list": [], "order": False})
    '{\\n\\t"offsetTable":{0:12\\n\\t},\\n\\t"list":[],\\n\\t"order":false\\n}'
    """
    return "".join(_lines(value, "\n"))


def _lines(value: Any, line: str) -> Iterator[str]:
    """Yield pieces of text. line: line break and indentation of the level of `value`."""
    if isinstance(value, dict) and value:
        inner = line + "\t"
        separator = "{"
        for key, item in value.items():
            # fastjson begins a new line only for a text key, but always for the end of a map
            place = "" if isinstance(key, int) else inner
            yield f"{separator}{place}{_key(key)}:"
            yield from _lines(item, inner)
            separator = ","
        yield line + "}"
    elif isinstance(value, list):
        yield "[" + ",".join("".join(_lines(item, line + "\t")) for item in value) + "]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def _key(key: str | int) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


_QUEUES_OF_A_NEW_TOPIC = 4
_ONE_QUEUE = (RETRY_PREFIX, DEAD_LETTER_PREFIX, *SYSTEM_PREFIXES)
_READ, _WRITE = 4, 2
QUEUE_TYPE, BATCH_QUEUES = "queue.type", "BatchCQ"
"""The attribute of topics with batch queues (spec 02, 2.7)."""
CLEANUP_POLICY, COMPACTED = "cleanup.policy", "COMPACTION"
MESSAGE_TYPE, LITE = "message.type", "LITE"
LITE_EXPIRATION = "lite.topic.expiration"
"""Minutes without messages after which a broker deletes an LMQ of a LITE topic; -1: never (5.5.1)."""


def attribute_of(entry: Any, name: str) -> str | None:
    """An attribute in a topic's entry, such as `queue.type`; None if it has none."""
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    value = attributes.get(name) if isinstance(attributes, dict) else None
    return value if isinstance(value, str) else None


class Topics:
    """The topics that a store's broker knows. Usage: `Topics.read`, `add`, `write`."""

    def __init__(self, path: Path, content: dict[str, Any], main: bytes | None) -> None:
        self.path = path
        self._content = content
        self._main = main
        self._added = 0
        self._own = set[str]()  # topics that were added

    @classmethod
    def read(cls, config: Path) -> Topics:
        """Read topics.json of a `config` directory, or its .bak if it is missing or broken.

        Raises Refused if neither can be parsed, when no broker starts; Unreadable.
        """
        path = config / formats.FILE
        main, backup = _read(path), _read(path.with_name(formats.FILE + BACKUP))
        for data in (main, backup):
            content = _parse(data) if data else None
            if content is not None:
                return cls(path, content, data if data is main else None)
        if main or backup:
            raise Refused(
                "neither topics.json nor its .bak can be parsed",
                path=path,
                hint="repair it, or do not use it: --no-topic-config",
            )
        return cls(path, {}, None)

    @property
    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = self._content.get(formats.TOPIC_CONFIG_TABLE, {})
        return table

    @property
    def known(self) -> Collection[str]:
        """The names of all topics."""
        return self._table.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    def queues(self, topic: str) -> int | None:
        """Number of queues that a broker serves for a topic, None if it does not know the topic."""
        entry = self._table.get(topic)
        if not isinstance(entry, dict):
            return None
        counts = (entry.get(name) for name in (formats.READ_QUEUE_NUMS, formats.WRITE_QUEUE_NUMS))
        return max((count for count in counts if isinstance(count, int)), default=0)

    def unserved(self, highest_queue: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """(topic, highest queue id in use, number of queues) of the topics in `highest_queue` with too few queues."""
        counts = {topic: self.queues(topic) for topic in highest_queue}
        return [
            (topic, highest_queue[topic], count)
            for topic, count in counts.items()
            if count is not None and highest_queue[topic] >= count
        ]

    def attribute(self, topic: str, name: str) -> str | None:
        """An attribute of a topic, such as `queue.type`; None if it has none."""
        return attribute_of(self._table.get(topic), name)

    def missing(self, highest_queue: Mapping[str, int]) -> dict[str, int]:
        """The topics in `highest_queue` without an entry, or with an entry of `add` that has too few queues for it."""
        table = self._table
        return {
            t: q for t, q in highest_queue.items() if t not in table or (t in self._own and q >= (self.queues(t) or 0))
        }

    def add(self, highest_queue: Mapping[str, int], profile: WriterProfile, batch_topics: Collection[str] = ()) -> None:
        """Add missing topics. highest_queue: topic → highest queue id in use. batch_topics: those with batch queues."""
        missing = self.missing(highest_queue)
        if not missing:
            return
        self._added += len(missing)
        self._own |= missing.keys()
        self._content.setdefault(DATA_VERSION.member, {})
        table = self._content.setdefault(formats.TOPIC_CONFIG_TABLE, {})
        for topic, queue_id in missing.items():
            table[topic] = new_topic(topic, queue_id, profile)
            if topic in batch_topics:
                table[topic]["attributes"] = {QUEUE_TYPE: BATCH_QUEUES}

    def write(self, files: Files, profile: WriterProfile, now_ms: Callable[[], int]) -> None:
        """Write the file if topics were added; the old content becomes the .bak."""
        if not self._added:
            return
        version = self._content[DATA_VERSION.member]
        counter = version.get("counter")
        version["counter"] = (counter if isinstance(counter, int) else 0) + self._added
        if profile.modern_topics:
            version.setdefault(STATE_VERSION, 0)
        version["timestamp"] = now_ms()
        files.make_directory(self.path.parent)
        if self._main is not None:
            replace_file(files, self.path.with_name(formats.FILE + BACKUP), self._main)
        data = dumps(self._content).encode()
        replace_file(files, self.path, data)
        self._main, self._added = data, 0


def new_topic(topic: str, highest_queue: int, profile: WriterProfile) -> dict[str, Any]:
    """The entry that a broker makes when a producer sends to an unknown topic."""
    queues = 1 if topic.startswith(_ONE_QUEUE) else _QUEUES_OF_A_NEW_TOPIC
    if topic == SCHEDULE_TOPIC:
        queues = len(parse_levels())
    queues = max(queues, highest_queue + 1)
    closed = profile.closed_dead_letters and topic.startswith(DEAD_LETTER_PREFIX)
    entry: dict[str, Any] = {"attributes": {}} if profile.modern_topics else {}
    return entry | {
        "order": False,
        "perm": _WRITE if closed else _READ | _WRITE,
        formats.READ_QUEUE_NUMS: queues,
        formats.TOPIC_FILTER_TYPE: "SINGLE_TAG",
        formats.TOPIC_NAME: topic,
        formats.TOPIC_SYS_FLAG: 0,
        formats.WRITE_QUEUE_NUMS: queues,
    }


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_BYTES)
    except Missing:
        return None


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        content = loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    parts = (content.get(name, {}) for name in (formats.TOPIC_CONFIG_TABLE, DATA_VERSION.member))
    return content if all(isinstance(part, dict) for part in parts) else None


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Replace the content of a file atomically. After an error no temporary file is left."""
    temporary = path.with_name(path.name + ".tmp")
    if temporary.exists():
        files.unlink(temporary)
    try:
        write_new(files, temporary, data, like=path if path.exists() else None)
        files.rename(temporary, path)
    except StoreError:
        if temporary.exists():
            files.unlink(temporary)
        raise
    files.sync_directory(path.parent)


def now_ms() -> int:
    """The current time in ms since 1970."""
    return time.time_ns() // 1_000_000
