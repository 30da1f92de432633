"""The broker's configuration, as far as it says where and how a store lies on disk (spec 05, 5.5).

A broker reads Java properties (`broker.conf`, `broker.properties`). Options are found by
RocketMQ's own names; `maped…`, the spelling of the 4.x brokers, and `mapped…` are the same option.
Unknown names are kept: another version may know them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Literal

from ..errors import InvalidInput, LimitExceeded, os_errors
from . import byte_reader

LARGEST_FILE_BYTES = 16 << 20
"""A configuration file above this size is not one; it is not read."""
CONFIG_VERSION, CONFIG_V2 = "configManagerVersion", "v2"
"""With it topics, groups and positions are in config/rdb, whatever has the queues."""

DEFAULTS: Mapping[str, int] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeConsumeQueueExt": 48 << 20,
    "mapperFileSizeBatchConsumeQueue": 13_800_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "mappedFileSizeTimerLog": 100 << 20,
}
"""Sizes that a broker takes where its configuration is silent: bytes, slots, items (spec README)."""
_IF_UNNAMED: Mapping[str, str] = {
    "storeType": "default",
    CONFIG_VERSION: "v1",
    "timerPrecisionMs": "1000",
    **dict.fromkeys(
        (
            "combineCQUseRocksdbForLmq",
            "enableConsumeQueueExt",
            "enableDLegerCommitLog",
            "enableLmq",
            "enableMultiDispatch",
            "rocksdbCQDoubleWriteEnable",
            "rocksdbCQSelectiveDoubleWriteEnable",
            "timerRocksDBEnable",
            "useSeparateStorePathForRocksdbCQ",
            "useSingleRocksDBForAllConfigs",
        ),
        "false",
    ),
}
"""Defaults of options that are learned from the store where nothing tells them, and that decide what a start reads: a
broker whose broker.conf does not name them starts with these, whatever is there. Not of sizes: files tell those.
"""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOG, _READ_ONLY_LOG = "storePathCommitLog", "readOnlyCommitLogStorePaths"
_PLACES = re.compile(rf"storePath[A-Z]|{_READ_ONLY_LOG}$")
_FORMS = frozenset({"storeType", "rocksdbCQDoubleWriteEnable", "useSingleRocksDBForAllConfigs", CONFIG_VERSION})
"""Options that say whether a store has its queues and tables in files or in RocksDBs."""
_SPLITTER = "rocketmq.broker.multiPathSplitter"
"""A property of the JVM, no option of a broker: what stands between paths, `,` without it (spec 1.12)."""
_SEPARATOR = r"(?<!\\)(?:\\\\)*(?P<at>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"


class BrokerConfig(Mapping[str, str]):
    """Options of a broker by name. Immutable.

    words: how they are given to a command, `--broker-config FILE` and `--set NAME=VALUE`. whole: they are all that a
    broker is told, as by its broker.conf: what they do not name is its default, not what a store shows.

    >>> config = BrokerConfig({"mapedFileSizeCommitLog": "8192"})
    >>> config.get_int("mappedFileSizeCommitLog")
    8192
    """

    def __init__(
        self, options: Mapping[str, str] | None = None, words: tuple[str, ...] | None = None, *, whole: bool = False
    ) -> None:
        self._named = {_canonical(name): value for name, value in (options or {}).items()}
        self._options = {**_IF_UNNAMED, **self._named} if whole else self._named
        self._whole = whole
        if words is None:
            settings = (f"{name}={value}" for name, value in self._named.items())
            words = tuple(word for setting in settings for word in ("--set", setting))
        self.words = words

    @classmethod
    def of(cls, options: Mapping[str, object] | None) -> BrokerConfig:
        """A configuration as users of the library give it: by name, numbers and booleans, too. Raises InvalidInput."""
        if options is None or isinstance(options, BrokerConfig):
            return options or cls()
        if not isinstance(options, Mapping):
            hint = "BrokerConfig.from_file reads a broker.conf"
            raise InvalidInput(f"a configuration is options by name, not {options!r}", hint=hint)
        return cls({str(name): str(value) for name, value in options.items()})

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> BrokerConfig:
        """Read a `broker.conf`. Raises Missing, Unreadable, InvalidInput, LimitExceeded."""
        with os_errors(path), Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                size = min(status.st_size, LARGEST_FILE_BYTES + 1)
                data = byte_reader.read(file.fileno(), size, 0, os.fspath(path))
            else:
                data = file.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise LimitExceeded("too large for a broker configuration", path=path)
        if b"\0" in data:
            raise InvalidInput("not a broker configuration: it has NUL bytes", path=path)
        options = parse_properties(data.decode("iso-8859-1"))
        return cls(options, ("--broker-config", os.fspath(path)), whole=True)

    def with_set(self, settings: Iterable[str]) -> BrokerConfig:
        """This configuration overridden by `NAME=VALUE` texts, the last of a name wins."""
        options, words = dict(self._named), self.words
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals or not name.strip():
                raise InvalidInput(f"not NAME=VALUE: {setting}")
            options[_canonical(name.strip())] = value.strip()
            words += ("--set", setting)
        return BrokerConfig(options, words, whole=self._whole)

    def for_new_store(self) -> BrokerConfig:
        """These options for a store that is made elsewhere: without those that name places of a store."""
        named = {name: value for name, value in self._named.items() if not _PLACES.match(name)}
        return BrokerConfig(named, whole=self._whole)

    def of_another_store(self) -> BrokerConfig:
        """The same for a store that is read beside this one, which may be of another form: what is there tells."""
        named = self._named.items()
        return BrokerConfig({name: text for name, text in named if name not in _FORMS and not _PLACES.match(name)})

    def get_int(self, name: str, default: int | None = None) -> int | None:
        """The option as a number, `default` where it is not set. Raises InvalidInput."""
        value = self.get(name)
        if value is None:
            return default
        try:
            return int(value)
        except ValueError:
            raise InvalidInput(f"{name} is not a number: {value}") from None

    def get_bool(self, name: str, default: bool = False) -> bool:
        """The option as Java reads a boolean: only `true`, in any case, is true."""
        value = self.get(name)
        return default if value is None else value.lower() == "true"

    def get_paths(self, name: str) -> list[str]:
        """The option as a list of paths, empty where not set: separated by `,`, `;` or `:`, or by what the JVM property
        `rocketmq.broker.multiPathSplitter` names, which is given like an option. A directory with a `;` or `:` in its
        name stays one, as for brokers.
        """
        return [part for part in re.split(self._splitter(name), self.get(name, "")) if part.strip()]

    def _splitter(self, name: str) -> str:
        """The regular expression between the paths of an option."""
        if told := self.get(_SPLITTER, ""):
            return re.escape(told)
        odd = (part for part in self.get(name, "").split(",") if re.search("[;:]", part))
        return "," if any(os.path.isdir(part) for part in odd) else "[,;:]"  # noqa: PTH112

    @property
    def log_paths(self) -> list[str]:
        """The directories of the commit log, empty where not set. Brokers ask for those that are only read where the
        others are several by their text, `DIRECTORY,` included.
        """
        several = re.search(self._splitter(_LOG), self.get(_LOG, ""))
        return self.get_paths(_LOG) + (self.get_paths(_READ_ONLY_LOG) if several else [])

    @property
    def unread_log_paths(self) -> list[str]:
        """Those of the directories that are only read which no broker reads."""
        read = self.log_paths
        return [path for path in self.get_paths(_READ_ONLY_LOG) if path not in read]

    @property
    def unsplit_log_paths(self) -> str:
        """Why brokers do not split `storePathCommitLog` as `get_paths` does, "" where they do."""
        is_told = _SPLITTER in self or self._splitter(_LOG) == ","
        found = None if is_told else re.search("[;:]", self.get(_LOG, ""))
        if found is None:
            return ""
        told = f"brokers split {_LOG} at a comma alone, not at {found[0]}"
        return f"{told}, unless their JVM was told so (then: --set '{_SPLITTER}={found[0]}')"

    @property
    def is_slave(self) -> bool:
        """It copies the log and the configuration of a master."""
        return self.get("brokerRole", "").upper() == "SLAVE"

    @property
    def broker_name(self) -> str | None:
        """The name of the broker, None where no option tells it."""
        return self.get("brokerName")

    def size(self, name: str) -> tuple[int, Literal["configuration", "default"]]:
        """A file size: its value and `configuration` or `default`. Raises InvalidInput."""
        value = self.get_int(name)
        if value is None:
            return DEFAULTS[_canonical(name)], "default"
        if value <= 0:
            raise InvalidInput(f"{name} must be positive: {value}")
        return value, "configuration"

    def __getitem__(self, name: str) -> str:
        return self._options[_canonical(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"BrokerConfig({self._options!r})"


def _canonical(name: str) -> str:
    return "mapped" + name[len("maped") :] if name.startswith("maped") else name


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: comments, continued lines, escapes; the last of a name wins.

    >>> parse_properties("a = 1\\\\\\n  2\\n# no\\nb:\\\\u0041")
    {'a': '12', 'b': 'A'}
    """
    options = {}
    for line in _logical_lines(text):
        separator = re.search(_SEPARATOR, line)
        if separator is None:
            options[_unescape(line)] = ""
        else:
            start, end = separator.span("at")
            options[_unescape(line[:start])] = _unescape(line[end:])
    return options


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, those that end in a backslash joined."""
    parts: list[str] = []
    goes_on = False
    for natural in re.split(r"\r\n|[\r\n]", re.sub(r"[\r\n]\Z", "", text)):
        line = natural.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            goes_on = False
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        line = line[:-1] if goes_on else line
        parts += [line] if line else []
        if not goes_on:
            yield "".join(parts)
            parts.clear()
    if parts or goes_on:
        yield "".join(parts)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, char = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text)
