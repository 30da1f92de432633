"""The broker's configuration, as far as it says where and how a store lies on disk (spec 05, 5.5).

A broker reads Java properties (`broker.conf`, `broker.properties`). Options are found by RocketMQ's own
names; `mapedFileSize…`, as 4.3 spells it, is the same option as `mappedFileSize…`, except in a file: there a
broker takes its own spelling alone. Unknown names are kept: another version may know them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

from ...formats.hashing import java_integer, java_trim
from ..errors import InvalidInput, LimitExceeded, os_errors
from . import byte_reader

LARGEST_FILE_BYTES = 16 << 20
"""A configuration file above this size is not one; it is not read."""
ROCKSDB_STORE_TYPE = "defaultRocksDB"
"""The `storeType` of brokers that have their consume queues in a RocksDB alone; its case does not count for them."""
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

_NUMBERS = frozenset(
    {
        *DEFAULTS,
        "combineCQMaxExtraSearchCommitLogFiles",
        "commitLogRecoverMaxNum",
        "compactionCqMappedFileSize",
        "compactionMappedFileSize",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "expectConsumerNumUseFilter",
        "fileReservedTime",
        "maxErrorRateOfBloomFilter",
        "maxMessageSize",
        "tieredStoreIndexFileMaxHashSlotNum",
        "timerMaxDelaySec",
        "timerPrecisionMs",
        "timerRollWindowSlot",
    }
)
"""Options that are an `int` to brokers, of those that are asked for here."""
_RENAMED = {f"mapedFileSize{part}": f"mappedFileSize{part}" for part in ("CommitLog", "ConsumeQueue")}
"""The names of 4.3, with those since 4.5.2."""
_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_SHOWN = 80
"""Characters of a value in a message."""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOG, _READ_ONLY_LOG = "storePathCommitLog", "readOnlyCommitLogStorePaths"
_PLACES = re.compile(rf"storePath[A-Z]|{_READ_ONLY_LOG}$")
_FORMS = frozenset({"storeType", "rocksdbCQDoubleWriteEnable", "useSingleRocksDBForAllConfigs", CONFIG_VERSION})
"""Options that say whether a store has its queues and tables in files or in RocksDBs."""
_SPLITTER = "rocketmq.broker.multiPathSplitter"
"""A property of the JVM, no option of a broker: what stands between paths, `,` without it (spec 1.12)."""
_MALFORMED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_SEPARATOR = r"(?<!\\)(?:\\\\)*(?P<at>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"


class FileRules(NamedTuple):
    """How a broker reads its broker.conf (spec 5.5). None: brokers of both kinds may read it; what one takes counts.

    old_names: the file sizes of log and queues have the names of 4.3. strips: blanks around a text do not count.
    """

    old_names: bool | None = None
    strips: bool | None = None


class BrokerConfig(Mapping[str, str]):
    """Options of a broker by name. Immutable.

    words: how they are given to a command, `--broker-config FILE` and `--set NAME=VALUE`. whole: they are all that a
    broker is told, as by its broker.conf: what they do not name is its default, not what a store shows. untaken: of a
    file, why a broker does not take an option as it is written there, by name. unsure: brokers differ in how they read
    it, and which one does was not told.

    >>> config = BrokerConfig({"mapedFileSizeCommitLog": "8192"})
    >>> config.get_int("mappedFileSizeCommitLog")
    8192
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        words: tuple[str, ...] | None = None,
        *,
        whole: bool = False,
        untaken: Mapping[str, str] | None = None,
        unsure: bool = False,
    ) -> None:
        self._named = {_canonical(name): value for name, value in (options or {}).items()}
        if self._named.get("storeType", "").lower() == ROCKSDB_STORE_TYPE.lower():
            self._named["storeType"] = ROCKSDB_STORE_TYPE
        self._options = {**_IF_UNNAMED, **self._named} if whole else self._named
        self._whole = whole
        if words is None:
            settings = (f"{name}={value}" for name, value in self._named.items())
            words = tuple(word for setting in settings for word in ("--set", setting))
        self.words = words
        self.untaken, self.unsure = dict(untaken or {}), unsure

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
    def from_file(cls, path: str | PathLike[str], rules: FileRules | None = None) -> BrokerConfig:
        """Read a `broker.conf` as brokers do. Raises Missing, Unreadable, InvalidInput, LimitExceeded."""
        with os_errors(path):
            data = _content(Path(path))
        return cls.from_bytes(data, path, rules)

    @classmethod
    def from_bytes(cls, data: bytes, path: str | PathLike[str], rules: FileRules | None = None) -> BrokerConfig:
        """What such a file says. Raises InvalidInput, LimitExceeded."""
        if len(data) > LARGEST_FILE_BYTES:
            raise LimitExceeded("too large for a broker configuration", path=path)
        if b"\0" in data:
            raise InvalidInput("not a broker configuration: it has NUL bytes", path=path)
        text, rules = data.decode("iso-8859-1"), rules or FileRules()
        if any(map(_MALFORMED.search, _logical_lines(text))):
            raise InvalidInput(r"not a broker configuration: \u without four hexadecimal digits", path=path)
        written = parse_properties(text)
        odd = any(name in _RENAMED or value != java_trim(value) for name, value in written.items())
        options, untaken = _as_read(written, rules)
        words = ("--broker-config", os.fspath(path))
        return cls(options, words, whole=True, untaken=untaken, unsure=odd and None in rules)

    def with_set(self, settings: Iterable[str]) -> BrokerConfig:
        """This configuration overridden by `NAME=VALUE` texts, the last of a name wins."""
        options, words = dict(self._named), self.words
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals or not name.strip():
                raise InvalidInput(f"not NAME=VALUE: {setting}")
            options[_canonical(name.strip())] = value.strip()
            words += ("--set", setting)
        untaken = {name: why for name, why in self.untaken.items() if options.get(name) == self._named.get(name)}
        return BrokerConfig(options, words, whole=self._whole, untaken=untaken, unsure=self.unsure)

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
        number = java_integer(value, 32)
        if number is None:
            raise InvalidInput(f"{name} is not a number: {value}")
        return number

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
        told = f"brokers split {_LOG} only at a comma, not at {found[0]}"
        return f"{told}, unless their JVM has {_SPLITTER} (then: --set '{_SPLITTER}={found[0]}')"

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


_PIPED: dict[tuple[int, int], bytes] = {}
"""What came through pipes, by device and inode."""


def _content(path: Path) -> bytes:
    """The bytes of a file, as far as one can be that large; a pipe gives them once. Raises OSError, Unreadable."""
    status = path.stat()
    if (pipe := (status.st_dev, status.st_ino)) in _PIPED:
        return _PIPED[pipe]
    with path.open("rb") as file:
        if stat.S_ISREG(status.st_mode):
            size = min(status.st_size, LARGEST_FILE_BYTES + 1)
            return byte_reader.read(file.fileno(), size, 0, os.fspath(path))
        return _PIPED.setdefault(pipe, file.read(LARGEST_FILE_BYTES + 1))


def _canonical(name: str) -> str:
    return _RENAMED.get(name, name)


def _as_read(written: Mapping[str, str], rules: FileRules) -> tuple[dict[str, str], dict[str, str]]:
    """Options of a file with the values that a broker has of them, and why it does not take what is written, by name.

    What a broker cannot read is not there for it. A size is its default then, whatever the files of a store tell.
    """
    found, untaken = dict(written), dict[str, str]()
    for old, new in _RENAMED.items():
        name, other = (new, old) if rules.old_names else (old, new)
        if name in found and (rules.old_names is not None or other in found):
            del found[name]
            counts = found.setdefault(other, str(DEFAULTS[new]))
            when = "before" if rules.old_names else "since"
            untaken[new] = f"{name}: brokers {when} 4.5.2 use {other} instead: {counts[:_SHOWN]} is used here"
        elif old in found:
            untaken[new] = f"{old}: brokers since 4.5.2 use {new} instead"
    for name, text in list(found.items()):
        value, why = _value(_canonical(name), text, rules)
        if why:
            untaken[_canonical(name)] = f"{name}={text[:_SHOWN]!r}: {why}"
        if value is None:
            del found[name]
        else:
            found[name] = value
    return found, untaken


def _value(name: str, text: str, rules: FileRules) -> tuple[str | None, str]:
    """What a broker has of an option, None for its default, and why that is not what is written, or not for all."""
    bare = java_trim(text)
    blanks = " (the blank counts)" if bare != text else ""
    taken = text if rules.strips is False else bare
    if name in _NUMBERS:
        if java_integer(text, 32) is not None:
            return text, ""
        default = str(DEFAULTS[name]) if name in DEFAULTS else None
        why = f"not a number for brokers{blanks if java_integer(bare, 32) is not None else ''}: the default is used"
        return default, f"{why}, {default}" if default else why
    if blanks and bare.lower() == "true":
        return "false", f"false to brokers{blanks}"
    if name == "brokerRole" and taken not in _ROLES:
        return None, f"not one of {', '.join(_ROLES)} for brokers: the default is used, {_ROLES[0]}"
    if blanks and not rules.strips:
        return taken, "brokers before 5.2 keep the blank"
    return taken, "brokers read ISO-8859-1, not UTF-8: write other letters as \\uXXXX" if _is_utf8(text) else ""


def _is_utf8(text: str) -> bool:
    """What was read as ISO-8859-1 was written as UTF-8, and is not the same then."""
    try:
        return not text.isascii() and bool(text.encode("iso-8859-1").decode())
    except UnicodeError:
        return False


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
