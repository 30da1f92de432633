"""The broker's configuration: the options that say where and how a store lies on disk (spec 05, 5.5).

A broker reads Java properties (`broker.conf`, `broker.properties`). Options are looked up by RocketMQ's own names.
`mapedFileSize…`, the spelling of 4.3, is an alias of `mappedFileSize…`, except in a file: there a broker reads only
the spelling of its own version. Unknown names are kept, since another version may know them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, overload

from ...formats.config import BACKUP
from ...formats.hashing import java_integer, java_trim
from ..errors import InvalidInput, LimitExceeded, os_errors
from . import byte_reader

LARGEST_FILE_BYTES = 16 << 20
"""A configuration file above this size is refused without reading it."""
ROCKSDB_STORE_TYPE = "defaultRocksDB"
"""The `storeType` of brokers that have consume queues only in a RocksDB; brokers ignore its case."""
_STORE_TYPES = {name.lower(): name for name in ("default", ROCKSDB_STORE_TYPE)}
_STORE_TYPE_OPTIONS = ("storeType", "combineAssignOffsetCQType", "combineCQPreferCQType")
_ROLE = "brokerRole"
CONTROLLER_MODE = "enableControllerMode"
"""The option with which a controller names the master of the broker's group."""
CONFIG_VERSION, CONFIG_V2 = "configManagerVersion", "v2"
"""The option and its value with which topics, groups and offsets are in config/rdb, wherever the queues are."""

DEFAULTS: Mapping[str, int] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeConsumeQueueExt": 48 << 20,
    "mapperFileSizeBatchConsumeQueue": 13_800_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "mappedFileSizeTimerLog": 100 << 20,
}
"""File sizes that a broker uses if its configuration does not set them: bytes, slots, items (spec README)."""
_DEFAULT_TEXTS: Mapping[str, str] = {
    "storeType": "default",
    CONFIG_VERSION: "v1",
    "brokerClusterName": "DefaultCluster",
    "timerPrecisionMs": "1000",
    **dict.fromkeys(
        (
            "combineCQUseRocksdbForLmq",
            "enableConsumeQueueExt",
            CONTROLLER_MODE,
            "enableDLegerCommitLog",
            "enableLmq",
            "enableMultiDispatch",
            "popConsumerKVServiceInit",
            "rocksdbCQDoubleWriteEnable",
            "rocksdbCQSelectiveDoubleWriteEnable",
            "timerRocksDBEnable",
            "transRocksDBEnable",
            "useSeparateStorePathForRocksdbCQ",
            "useSingleRocksDBForAllConfigs",
        ),
        "false",
    ),
}
"""Defaults of the options that decide what a start reads. Without a configuration they are learned from the store; a
broker whose broker.conf does not name them uses these values, whatever is in the store. Sizes are learned from files.
"""

_INT_OPTIONS = frozenset(
    {
        *DEFAULTS,
        "brokerPermission",
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
"""The options used here that a broker reads as an `int`."""
_RENAMED = {f"mapedFileSize{part}": f"mappedFileSize{part}" for part in ("CommitLog", "ConsumeQueue")}
"""Option names of 4.3: their names since 4.5.2."""
_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_SHOWN = 80
"""Characters of a value that a message shows."""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOG, _READ_ONLY_LOG = "storePathCommitLog", "readOnlyCommitLogStorePaths"
_ROOT, _HOME_STORE = "storePathRootDir", "store"
_IN_HOME = f"brokers before 4.9.4 read $HOME/{_HOME_STORE}/commitlog where {_LOG} is not set, whatever {_ROOT} is"
_PATHS = re.compile(rf"storePath[A-Z]|{_READ_ONLY_LOG}$")
_FORMS = frozenset({"storeType", "rocksdbCQDoubleWriteEnable", "useSingleRocksDBForAllConfigs", CONFIG_VERSION})
"""Options that say whether a store has its queues and tables in files or in RocksDBs."""
SPLITTER_PROPERTY = "rocketmq.broker.multiPathSplitter"
"""A JVM property, not an option of the broker: the separator of paths, `,` by default (spec 1.12)."""
_MALFORMED_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_SEPARATOR = r"(?<!\\)(?:\\\\)*(?P<at>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"


class FileRules(NamedTuple):
    """How a broker reads its broker.conf (spec 5.5). None: unknown, so a value that either kind takes is used.

    old_names: the file sizes of log and queues have the names of 4.3. strips: blanks around a value are removed.
    splits: storePathCommitLog is a list. log_in_root: without storePathCommitLog the log is in storePathRootDir.
    """

    old_names: bool | None = None
    strips: bool | None = None
    splits: bool | None = None
    log_in_root: bool | None = None


class BrokerConfig(Mapping[str, str]):
    """Options of a broker by name. Immutable.

    words: the command-line arguments that give these options, `--broker-config FILE` and `--set NAME=VALUE`. whole: the
    options are the broker's complete configuration, as a broker.conf is: an option that is not named has its default,
    not the value learned from the store. untaken: by option name, why a broker does not use the value in the file.
    unsure: brokers differ in how they read the file, and the version is not known. rules: how the broker reads it.

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
        rules: FileRules | None = None,
    ) -> None:
        self._named = {_canonical(name): value for name, value in (options or {}).items()}
        for name in _STORE_TYPE_OPTIONS:
            if (known := _STORE_TYPES.get(self._named.get(name, "").lower())) is not None:
                self._named[name] = known
        self._options = {**_DEFAULT_TEXTS, **self._named} if whole else self._named
        self._whole = whole
        if words is None:
            settings = (f"{name}={value}" for name, value in self._named.items())
            words = tuple(word for setting in settings for word in ("--set", setting))
        self.words = words
        self.untaken, self.unsure = dict(untaken or {}), unsure
        self._rules = rules or FileRules()

    @classmethod
    def of(cls, options: Mapping[str, object] | None) -> BrokerConfig:
        """The configuration that a user of the library passes; values may be numbers, booleans. Raises InvalidInput."""
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
        """Parse the content of a `broker.conf`; `path` is for messages. Raises InvalidInput, LimitExceeded."""
        if len(data) > LARGEST_FILE_BYTES:
            raise LimitExceeded("too large for a broker configuration", path=path)
        if b"\0" in data:
            raise InvalidInput("not a broker configuration: it has NUL bytes", path=path)
        text, rules = data.decode("iso-8859-1"), rules or FileRules()
        if any(map(_MALFORMED_ESCAPE.search, _logical_lines(text))):
            raise InvalidInput(r"not a broker configuration: \u without four hexadecimal digits", path=path)
        written = parse_properties(text)
        odd = any(name in _RENAMED or value != java_trim(value) for name, value in written.items())
        options, untaken = _as_read(written, rules)
        words = ("--broker-config", os.fspath(path))
        unsure = odd and None in (rules.old_names, rules.strips)
        return cls(options, words, whole=True, untaken=untaken, unsure=unsure, rules=rules)

    def with_set(self, settings: Iterable[str]) -> BrokerConfig:
        """This configuration overridden by `NAME=VALUE` texts; the last value of a name wins. Raises InvalidInput."""
        options, words = dict(self._named), self.words
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals or not name.strip():
                raise InvalidInput(f"not NAME=VALUE: {setting}")
            options[_canonical(name.strip())] = value.strip()
            words += ("--set", setting)
        untaken = {name: why for name, why in self.untaken.items() if options.get(name) == self._named.get(name)}
        return BrokerConfig(options, words, whole=self._whole, untaken=untaken, unsure=self.unsure, rules=self._rules)

    def for_new_store(self) -> BrokerConfig:
        """These options for a store that is created elsewhere: without paths of the store, and without a master whose
        log it would copy.
        """
        named = {
            name: value
            for name, value in self._named.items()
            if not _PATHS.match(name) and name not in (_ROLE, CONTROLLER_MODE)
        }
        return BrokerConfig(named, whole=self._whole)

    def for_other_store(self) -> BrokerConfig:
        """As `for_new_store`, for an existing store: also without options that say whether it uses RocksDBs."""
        named = self._named.items()
        return BrokerConfig({name: text for name, text in named if name not in _FORMS and not _PATHS.match(name)})

    @overload
    def get_int(self, name: str) -> int | None: ...
    @overload
    def get_int(self, name: str, default: int) -> int: ...
    def get_int(self, name: str, default: int | None = None) -> int | None:
        """The option as a number, `default` if it is not set. Raises InvalidInput."""
        value = self.get(name)
        if value is None:
            return default
        number = java_integer(value, 32)
        if number is None:
            what = "is not a number" if java_integer(value, 64) is None else "is not in -2147483648 to 2147483647"
            raise InvalidInput(f"{name} {what}: {value}")
        return number

    def get_bool(self, name: str, default: bool = False) -> bool:
        """The option as Java reads a boolean: `true` in any case is True, every other text is False."""
        value = self.get(name)
        return default if value is None else value.lower() == "true"

    def get_paths(self, name: str) -> list[str]:
        """The option as a list of paths, empty if it is not set. Separators are `,`, `;` and `:`, or the text that the
        JVM property `rocketmq.broker.multiPathSplitter` names, which is set like an option. Brokers do not split at
        `;` or `:`: if a part between commas is an existing directory with such a character, only commas separate.
        """
        return [part for part in re.split(self._splitter(name), self.get(name, "")) if part.strip()]

    def _splitter(self, name: str) -> str:
        """The regular expression that matches the separator of the paths in an option."""
        if separator := self.get(SPLITTER_PROPERTY, ""):
            return re.escape(separator)
        unclear = (part for part in self.get(name, "").split(",") if re.search("[;:]", part))
        return "," if any(os.path.isdir(part) for part in unclear) else "[,;:]"  # noqa: PTH112

    @property
    def log_paths(self) -> list[str]:
        """The directories of the commit log, empty if not set. Brokers read the read-only directories only if the text
        of `storePathCommitLog` has a separator, as in `DIRECTORY,`.
        """
        several = re.search(self._splitter(_LOG), self.get(_LOG, ""))
        return self.get_paths(_LOG) + (self.get_paths(_READ_ONLY_LOG) if several else [])

    @property
    def names_no_log(self) -> bool:
        """The broker's complete configuration leaves the commit log where it is by default."""
        return self._whole and _LOG not in self

    @property
    def unread_log_paths(self) -> list[str]:
        """The read-only log directories that no broker reads."""
        read = self.log_paths
        return [path for path in self.get_paths(_READ_ONLY_LOG) if path not in read]

    def other_root(self, root: Path) -> str:
        """`storePathRootDir` of the complete configuration of a broker with another root than `root`; else ""."""
        named = self.get(_ROOT, "") if self._whole else ""
        return named if Path(named).is_absolute() and Path(named).resolve() != root.resolve() else ""

    def log_elsewhere(self, root: Path) -> str:
        """Why a broker with these options does not read the log of the store at `root` as it is read here, or not with
        the rest of this store; "" if it does.
        """
        from shlex import quote  # which a quick start does not need

        if self._rules.splits is False and "," in self.get(_LOG, ""):
            return f"brokers before 4.9.2 do not split {_LOG} at a comma, and look for one directory of that name"
        if self._reads_home and Path(self[_ROOT]).name != _HOME_STORE:
            named = quote(f"{_LOG}={root / 'commitlog'}")
            return f"{_IN_HOME}; name the directory of this log in broker.conf (and here: --set {named})"
        by_file = not any(word.startswith(f"{_LOG}=") for word in self.words)
        other, paths = self.other_root(root), [Path(path).resolve() for path in self.log_paths]
        if other and paths and by_file and all(path.is_relative_to(root.resolve()) for path in paths):
            why = f"with {_ROOT}={other} a broker reads this log with the queues and the configuration there"
            return f"{why}; if the broker's root is this store: --set {quote(f'{_ROOT}={root}')}"
        return self.unsplit_log_paths

    def doubt_about_log(self, root: Path) -> str:
        """Of which broker the answer is true, if the options leave open that its root or log is another; "" else."""
        if self._reads_home:
            return (
                f"{_IN_HOME}; only with the home directory {Path(self[_ROOT]).parent} is it the log that is read here"
            )
        other = self.other_root(root)
        return (
            other
            and f"the configuration has {_ROOT}={other}; the answer is for that broker with this store as its root"
        )

    @property
    def is_unsure_of_log(self) -> bool:
        """Whether brokers differ in where the log of this configuration is, and the version is not known."""
        unclear = "," in self.get(_LOG, "") or (_ROOT in self and _LOG not in self)
        return self._whole and unclear and None in (self._rules.splits, self._rules.log_in_root)

    @property
    def _reads_home(self) -> bool:
        return self._rules.log_in_root is False and self.names_no_log and _ROOT in self

    @property
    def unsplit_log_paths(self) -> str:
        """Why brokers do not split `storePathCommitLog` as `get_paths` does; "" if they do."""
        as_brokers = SPLITTER_PROPERTY in self or self._splitter(_LOG) == ","
        found = None if as_brokers else re.search("[;:]", self.get(_LOG, ""))
        if found is None:
            return ""
        why = f"brokers split {_LOG} only at a comma, not at {found[0]}"
        return f"{why}, unless their JVM has {SPLITTER_PROPERTY} (then: --set '{SPLITTER_PROPERTY}={found[0]}')"

    @property
    def is_slave(self) -> bool:
        """The broker copies the log and the configuration of a master."""
        return self.get(_ROLE, "").upper() == "SLAVE"

    def epoch_file(self, root: Path) -> Path:
        """The epochFileCheckpoint of a store at `root`, which need not exist (spec 06, 6.2)."""
        from ...formats.epoch_file import FILE

        return root / self.get("storePathEpochFile", FILE)

    def identity_file(self, root: Path) -> Path:
        """The brokerIdentity of a store at `root`, which need not exist (spec 06, 6.3)."""
        from ...formats.broker_identity import FILE

        return root / self.get("storePathBrokerIdentity", FILE)

    def controller_files(self, root: Path) -> set[str]:
        """Names in `root` of the files that a broker with a controller has there."""
        from ...formats.broker_identity import TEMPORARY

        paths = {self.epoch_file(root), *(Path(f"{self.identity_file(root)}{end}") for end in ("", TEMPORARY))}
        return {f"{path.name}{end}" for path in paths if path.parent == root for end in ("", BACKUP, ".tmp")}

    def has_controller(self, root: Path) -> bool:
        """A controller says which broker of the group is the master: each may follow another. If no option says so, a
        file of epochs in the store at `root` does.
        """
        epochs = os.fspath(self.epoch_file(root))
        return self.get_bool(CONTROLLER_MODE, any(map(os.path.isfile, (epochs, f"{epochs}{BACKUP}"))))

    @property
    def broker_name(self) -> str | None:
        """The name of the broker, None if no option sets it."""
        return self.get("brokerName")

    def size(self, name: str) -> tuple[int, Literal["configuration", "default"]]:
        """A file size and its source, `configuration` or `default`. Raises InvalidInput."""
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
"""Bytes read from pipes, by device and inode."""


def _content(path: Path) -> bytes:
    """At most LARGEST_FILE_BYTES + 1 bytes of a file; a pipe's are kept. Raises OSError, Unreadable."""
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
    """(options of a file with the values that a broker uses, by name why a broker does not use the written value).

    A value that a broker cannot read is left out. A size is then set to its default, whatever size the files have.
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
        value, why = _value_as_read(_canonical(name), text, rules)
        if why:
            untaken[_canonical(name)] = f"{name}={text[:_SHOWN]!r}: {why}"
        if value is None:
            del found[name]
        else:
            found[name] = value
    return found, untaken


def _value_as_read(name: str, text: str, rules: FileRules) -> tuple[str | None, str]:
    """(value that a broker uses or None for its default, why it is not the written one or not so for all brokers)."""
    bare = java_trim(text)
    blanks = " (the blank counts)" if bare != text else ""
    taken = text if rules.strips is False else bare
    if name in _INT_OPTIONS:
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
    """Whether a text that was read as ISO-8859-1 has been written as UTF-8 with non-ASCII letters."""
    try:
        return not text.isascii() and bool(text.encode("iso-8859-1").decode())
    except UnicodeError:
        return False


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's properties format: comments, continued lines, escapes; the last value of a name wins.

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
    """Yield lines without blank lines and comments; a line that ends in a backslash is joined with the next one."""
    parts: list[str] = []
    continues = False
    for physical_line in re.split(r"\r\n|[\r\n]", re.sub(r"[\r\n]\Z", "", text)):
        line = physical_line.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continues = False
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        line = line[:-1] if continues else line
        parts += [line] if line else []
        if not continues:
            yield "".join(parts)
            parts.clear()
    if parts or continues:
        yield "".join(parts)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, char = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text)
