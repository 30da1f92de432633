"""Where the parts of a store lie (spec README, "Directory map"; 01, 1.12 and 1.13).

The commit log is `STORE/commitlog`, or the directories that `storePathCommitLog` names, or directories found in the
store whose files have the right names and form one log. With DLedger it is `dledger-*/data`, after an older
`commitlog` if there is one. Topic-queues have directories below `consumequeue` and the like (spec 02, 2.1).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..counted import counted
from ..errors import (
    InvalidInput,
    Missing,
    NotAStore,
    NotFound,
    StoreError,
    Unsupported,
    broken_link,
    did_you_mean,
    from_os_error,
)
from .broker_conf import ROCKSDB_STORE_TYPE, BrokerConfig
from .compressed import is_compressed_name, plain_name
from .file_queue import NAME_DIGITS, ForeignEntry, MappedFile, MappedFileQueue, is_directory, size_of_log

COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE = "commitlog", "consumequeue", "batchconsumequeue"
CONSUME_QUEUE_EXT, ROCKSDB_CONSUME_QUEUE = "consumequeue_ext", "consumequeue_rocksdb"
_KEY_DIGITS = 12
INDEX, TIMER_LOG, CONFIG, LOCK = "index", "timerlog", "config", "lock"
JOURNAL = ".mqstore"
UNFINISHED = f"{JOURNAL}-unfinished"
BARRIER_PREFIX = "mqstore-recover-"
"""Name prefix of the file in the log directory that keeps brokers from starting during a repair."""
ROCKSDB_STORE, KV_STORE, TIERED_INDEX_FILES = "rocksdbstore", "kvStore", "tiered_index_file"
COMPACTION, COMPACTION_LOG, COMPACTION_QUEUES = "compaction", "compactionLog", "compactionCq"

DIRECTORIES = frozenset(
    {COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, TIMER_LOG, CONFIG}
    | {COMPACTION, ROCKSDB_STORE, ROCKSDB_CONSUME_QUEUE, KV_STORE, JOURNAL, TIERED_INDEX_FILES}
)
FILES = frozenset({"abort", "abort.bak", LOCK, "checkpoint", "timerwheel"})
DLEDGER_PREFIX = "dledger-"
ROCKSDB_CURRENT = "CURRENT"
"""A file that every RocksDB has."""
_MANIFEST, _SST, _SNAPSHOT_PREFIX = "MANIFEST-", ".sst", "timerwheel."
_LARGEST_DIRECTORY = 10_000
"""Most entries of a directory that is examined as a possible commit log."""
_LACKS = f"it has no {COMMIT_LOG}, {CONSUME_QUEUE}, {INDEX} or checkpoint"
T = TypeVar("T")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_uri(path: str) -> bool:
    """Whether a path names a place in object storage, such as `s3://bucket/store`."""
    return _URI.match(path) is not None


class Layout:
    """Paths of one store. `Layout.open` examines an existing store, `Layout.of` accepts any root.

    commit_log_directories: in the order of the configuration, or sorted. commit_log_origin: `default`, `configuration`,
    `found` or `dledger`. dledger: the data directory, None without DLedger. aside: directories with files of the log
    that a broker does not read, as far as its configuration is known: they were found beside a `commitlog` with files,
    or a whole configuration names none. The other paths are those that a broker uses, whether they exist or not.
    """

    def __init__(
        self,
        root: Path,
        broker_config: BrokerConfig,
        commit_log_directories: tuple[Path, ...],
        commit_log_origin: str,
        dledger: Path | None = None,
    ) -> None:
        self.root = root
        self.broker_config = broker_config
        self.commit_log_directories = commit_log_directories
        self.commit_log_origin = commit_log_origin
        self.dledger = dledger
        self.consume_queue = root / CONSUME_QUEUE
        self.batch_consume_queue = root / BATCH_CONSUME_QUEUE
        self.consume_queue_ext = root / CONSUME_QUEUE_EXT
        self.index = root / INDEX
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self.lock = root / LOCK
        self.config = root / CONFIG
        self.timer_wheel = root / "timerwheel"
        self.timer_log = root / TIMER_LOG
        #: A RocksDB that every start of a broker since 5.4 creates (spec 04, 4.10).
        self.rocksdb_store = root / ROCKSDB_STORE
        #: Logs of compaction topics, 5.1+ (spec 06, 6.1), and their queues.
        self.compaction_log = root / COMPACTION / COMPACTION_LOG
        self.compaction_queues = root / COMPACTION / COMPACTION_QUEUES
        self.aside: tuple[Path, ...] = ()
        #: The broker's version that the user has named: readers go by it, and proposed commands repeat it.
        self.version_named = ""
        #: Directory that has the journal instead of the root; see `keep_journal_in`.
        self.journal_place: Path | None = None
        #: Readers treat the log as ending at this position; see `MappedFileQueue.hold_still`.
        self.log_stop: int | None = None
        #: The same for queues in files, in bytes, by topic and queue id; a queue not in it counts as empty then.
        self.queue_stops: Mapping[tuple[str, int], int] = {}
        self._found: dict[Hashable, Any] = {}

    def once(self, find: Callable[[Layout], T], asked: Hashable = None) -> T:
        """The result of `find` for this store, computed once (once per `asked`). For a changed store open another."""
        key = asked or find
        if key not in self._found:
            self._found[key] = find(self)
        found: T = self._found[key]
        return found

    @classmethod
    def of(cls, root: str | os.PathLike[str], config: BrokerConfig | None = None) -> Layout:
        """The paths of a store at `root`, which need not exist. Raises InvalidInput, Unreadable."""
        config = config or BrokerConfig()
        root = Path(root)
        directories, origin, dledger = _commit_log(root, config)
        layout = cls(root, config, directories, origin, dledger)
        default = root / COMMIT_LOG
        if origin == "found" and (default in directories or config.names_no_log):
            layout.aside = tuple(path for path in directories if path != default)
        return layout

    @classmethod
    def open(cls, root: str | os.PathLike[str], config: BrokerConfig | None = None) -> Layout:
        """The paths of the store at `root`, which has a commit log, queues, index, or checkpoint. Raises InvalidInput
        (for a URI, say), Missing, NotAStore, Unreadable.
        """
        if is_uri(os.fspath(root)):
            raise InvalidInput(f"{os.fspath(root)}: use a path of this machine, not a URI")
        _check_directory(Path(root))
        layout = cls.of(root, config)
        if not any(path.exists() for path in layout._parts):
            raise NotAStore("not a message store", path=root, hint=where_instead(layout.root))
        return layout

    def as_started(self) -> Layout:
        """This store as a start finds it: without the log directories `aside`, which only readers know."""
        if not self.aside:
            return self
        started = Layout(self.root, self.broker_config, (self.root / COMMIT_LOG,), "default")
        started.aside = self.aside
        return self.carry_to(started)

    def carry_to(self, other: Layout) -> Layout:
        """Return another view of this store, with what was set after this one was opened."""
        other.journal_place, other.version_named = self.journal_place, self.version_named
        other.log_stop, other.queue_stops = self.log_stop, self.queue_stops
        return other

    @property
    def follows_master(self) -> bool:
        """The broker copies the log of a master, or may have to: which node of a DLedger group leads is not known."""
        return self.may_be_master or self.copies_config or self.has_peers

    @property
    def copies_config(self) -> bool:
        """The broker copies topics, groups and positions from its master. A node of a DLedger group may lead itself."""
        return self.broker_config.is_slave and self.dledger is None

    @property
    def may_be_master(self) -> bool:
        """A controller may make this broker the master, wherever its log ends. DLedger groups vote by that."""
        return self.dledger is None and self.broker_config.has_controller(self.root)

    @property
    def master(self) -> str:
        """What users call the broker that sends what this log lacks at its end."""
        other = "the master" if self.dledger is None else "the leader"
        return "another master" if self.may_be_master else other

    @cached_property
    def has_peers(self) -> bool:
        """The DLedger log is that of one of several nodes. If dLegerPeers does not say so, the member's votes do: a
        node that is alone votes for itself, in term 0 for ever.
        """
        from ...formats.dledger_state import TERM, VOTE

        if self.dledger is None:
            return False
        if peers := self.broker_config.get("dLegerPeers", ""):
            return len([peer for peer in peers.split(";") if peer.strip()]) > 1
        member = self.dledger.parent
        try:
            votes = BrokerConfig.from_file(member / "currterm")
        except StoreError:
            return False
        own = member.name.removeprefix(DLEDGER_PREFIX)
        return votes.get(TERM, "0").strip() != "0" or votes.get(VOTE, "").strip() not in ("", own)

    @property
    def _parts(self) -> tuple[Path, ...]:
        """Paths that make a directory a store if one exists; a log found elsewhere in it is not enough."""
        return (
            *(path for path in self.commit_log_directories if self.commit_log_origin != "found" and path != self.root),
            self.root / COMMIT_LOG,
            self.consume_queue,
            self.index,
            self.checkpoint,
            self.batch_consume_queue,
        )

    @cached_property
    def log_of_another(self) -> Path | None:
        """A configured commit log directory that belongs to another store: it lies beside that store's queues and lock,
        or storePathRootDir names another root. So with a copy and the broker.conf of the original. Else None.
        """
        if self.commit_log_origin != "configuration":
            return None
        root, plain = self.root.resolve(), os.path.abspath(self.root)  # noqa: PTH100 (a link inside is no other store)
        other = Path(self.broker_config.get("storePathRootDir", "") or root)
        for directory in self.commit_log_directories:
            above = directory.resolve().parent
            inside = Path(os.path.abspath(directory)).is_relative_to(plain) or above == root  # noqa: PTH100
            if not inside and (_is_root(above) or (other.is_dir() and other.resolve() != root)):
                return directory
        return None

    @cached_property
    def unread_log(self) -> str:
        """Why brokers do not read some directories that have files of the log; "" if they read all."""
        config = self.broker_config
        if self.aside:
            there = counted(sum(map(len, map(log_files, self.aside))), "file of this log is", "files of this log are")
            unknown = "a broker reads only if named in storePathCommitLog"
            which = "storePathCommitLog does not name" if config.names_no_log else unknown
            return f"{there} in {' and '.join(map(os.fspath, self.aside))}, which {which}"
        if elsewhere := config.log_elsewhere(self.root):
            return elsewhere
        why = "readOnlyCommitLogStorePaths works only if storePathCommitLog is a list (`DIRECTORY,` is enough)"
        paths = (absolute(self.root, path) for path in config.unread_log_paths)
        unread = (path for path in paths if log_files(path) and not _is_one_of(path, self.commit_log_directories))
        return next((f"no broker reads {path}: {why}" for path in unread), "")

    @property
    def is_root(self) -> bool:
        """Whether the path is the root of a store, not a part of one."""
        return any(path.is_dir() for path in (self.root / COMMIT_LOG, self.consume_queue, self.batch_consume_queue))

    @property
    def journal(self) -> Path:
        """The folder of the sessions of `recover` and `repair`, which no broker reads."""
        return (self.journal_place or self.root) / JOURNAL

    def keep_journal_in(self, directory: Path) -> None:
        """Keep sessions in a subfolder of `directory` whose name no other store has."""
        root = self.root.resolve()
        import hashlib

        key = hashlib.sha256(os.fsencode(root)).hexdigest()[:_KEY_DIGITS]
        self.journal_place = directory.resolve() / f"{root.name}-{key}"

    @cached_property
    def foreign(self) -> list[ForeignEntry]:
        """Entries of the root that belong to no part of a store. Raises Unreadable."""
        inside = (path for path in self.commit_log_directories if self.root in path.parents)
        known = {path.relative_to(self.root).parts[0] for path in inside} | DIRECTORIES | FILES
        known |= self.broker_config.controller_files(self.root)
        return [
            ForeignEntry(os.fspath(self.root / name), "unknown to a broker")
            for name in sorted(_names(self.root))
            if name not in known and not name.startswith((DLEDGER_PREFIX, _SNAPSHOT_PREFIX))
        ]

    @cached_property
    def queue_database(self) -> Path | None:
        """The RocksDB that has consume queues, alone or besides queues in files. None if there is none, or if brokers
        do not use it according to the configuration (spec 2.10). A RocksDB that lost its CURRENT, and so cannot be
        opened, counts.
        """
        config = self.broker_config
        alone = config.get("storeType") == ROCKSDB_STORE_TYPE
        if not alone and not config.get_bool("rocksdbCQDoubleWriteEnable", True):
            return None
        places = [self.consume_queue, self.root / ROCKSDB_CONSUME_QUEUE]
        if self.broker_config.get_bool("useSeparateStorePathForRocksdbCQ"):
            places.reverse()
        whole = (path for path in places if (path / ROCKSDB_CURRENT).is_file())
        lost = (path for path in places if was_rocksdb(path))
        return next(chain(whole, lost), None)

    @cached_property
    def rocksdb_queues(self) -> bool:
        """Whether brokers read consume queues only from the RocksDB (spec 2.10).

        storeType decides. If it is not known, they do if no topic has a directory of queues, or if the broker had its
        topics in a RocksDB when it last wrote them: then the queues in files are leftovers.
        """
        if self.queue_database is None:
            return False
        store_type = self.broker_config.get("storeType")
        if store_type == ROCKSDB_STORE_TYPE:
            return True
        if self.broker_config.get_bool("rocksdbCQDoubleWriteEnable"):
            return False
        if next(queue_directories(self.consume_queue), None) is None:
            return True
        return store_type is None and self._topics_in_rocksdb()

    @cached_property
    def queues_for_rocksdb(self) -> bool:
        """Whether a start of the broker uses consume queues only in a RocksDB, even if that does not exist.

        storeType decides. If it is not known and queues exist nowhere, the broker does if it had its topics in a
        RocksDB when it last wrote them.
        """
        store_type = self.broker_config.get("storeType")
        if store_type is not None or self.broker_config.get_bool("rocksdbCQDoubleWriteEnable"):
            return store_type == ROCKSDB_STORE_TYPE
        gone = self.queue_database is None and next(queue_directories(self.consume_queue), None) is None
        return self.rocksdb_queues or (gone and self._topics_in_rocksdb())

    @property
    def uses_queue_database(self) -> bool:
        """Whether a broker has consume queues in a RocksDB, according to its options or to what exists."""
        asked = self.queues_for_rocksdb or self.broker_config.get_bool("rocksdbCQDoubleWriteEnable")
        return asked or self.queue_database is not None

    def _topics_in_rocksdb(self) -> bool:
        """Whether a RocksDB of topics exists and is at least as new as topics.json, if there is one (spec 5.4)."""
        from ...formats.topics import FILE  # imported late: most stores do not need it

        try:
            places = (self.config / "topics", self.config / "metadata")
            found = [path.stat().st_mtime for path in places if (path / ROCKSDB_CURRENT).is_file()]
            return bool(found) and max(found) >= (self.config / FILE).stat().st_mtime
        except FileNotFoundError:
            return bool(found)
        except OSError:
            return False

    def commit_log_files(self) -> MappedFileQueue:
        """The files of the commit log. Raises Unreadable."""
        size, origin = self.broker_config.size("mappedFileSizeCommitLog")
        configured = size if origin == "configuration" else None
        files = MappedFileQueue.open(self.commit_log_directories, configured, learn=size_of_log)
        if self.log_stop is not None:
            files.hold_still(self.log_stop)
        return files


def was_rocksdb(path: Path) -> bool:
    """Whether a directory has files of a RocksDB but no CURRENT; a program that opens it refuses or loses them."""
    if (path / ROCKSDB_CURRENT).is_file() or not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return any(entry.name.startswith(_MANIFEST) or entry.name.endswith(_SST) for entry in entries)


def _commit_log(root: Path, config: BrokerConfig) -> tuple[tuple[Path, ...], str, Path | None]:
    """(directories of the commit log, how they were found, the DLedger data directory or None)."""
    default = root / COMMIT_LOG
    paths = tuple(dict.fromkeys(absolute(root, path) for path in config.log_paths))
    members = [root / name / "data" for name in _names(root) if name.startswith(DLEDGER_PREFIX)]
    members = sorted(path for path in members if path.is_dir())
    dledger = _dledger_data(root, config, members, paths)
    if dledger is not None:
        old = (path for path in paths or (default,) if _names(path) and not _is_one_of(path, members))
        return (*old, dledger), "dledger", dledger
    if paths:
        return paths, "configuration", None
    found = _find_logs(root)
    return (found, "found", None) if found and found != (default,) else ((default,), "default", None)


def _is_root(path: Path) -> bool:
    """Whether a directory has a part of a store, and a file that a broker puts beside it."""
    parts, files = (path / CONSUME_QUEUE, path / CONFIG), (path / LOCK, path / "checkpoint")
    return any(part.is_dir() for part in parts) and any(file.is_file() for file in files)


def absolute(root: Path, path: str) -> Path:
    """A path of the configuration; a relative one is resolved against the store if it exists there."""
    inside = root / path
    return inside if inside.exists() else Path(path)


def _dledger_data(root: Path, config: BrokerConfig, members: list[Path], paths: tuple[Path, ...]) -> Path | None:
    """Data directory of the DLedger log, which need not exist; None without DLedger, or if the configuration names
    another log. members: the data directories that exist. paths: configured log directories. Raises InvalidInput if
    several fit.
    """
    named = [path for path in members if _is_one_of(path, paths)]
    if not members or not config.get_bool("enableDLegerCommitLog", not paths or bool(named)):
        return None
    if own := config.get("dLegerSelfId"):
        return root / f"{DLEDGER_PREFIX}{own}" / "data"
    if len(found := named or members) > 1:
        own = found[0].parent.name.removeprefix(DLEDGER_PREFIX)
        hint = f"name one with --set dLegerSelfId={own}, or with --set storePathCommitLog=DIRECTORY"
        raise InvalidInput("several DLedger logs in one store", path=root, hint=hint)
    return found[0]


def _is_one_of(path: Path, others: Sequence[Path]) -> bool:
    return any(os.path.realpath(path) == os.path.realpath(other) for other in others)


def _find_logs(root: Path) -> tuple[Path, ...]:
    """Directories, up to two levels deep, whose files form one log.

    `commitlog` comes first. Another directory joins if its files have the same size and none of the positions already
    taken, and if they continue or precede the files chosen so far.
    """
    default = root / COMMIT_LOG
    log = log_files(default) if default.is_dir() else []
    chosen = [default] if log else []
    candidates = [(path, files) for path in _subdirectories(root) if (files := log_files(path))]
    candidates.sort(key=lambda candidate: (candidate[1][0].start, candidate[0]))
    joined = True
    while joined:
        joined = False
        for path, files in candidates:
            if path not in chosen and _continues(log, files):
                log = sorted([*log, *files], key=lambda file: file.start)
                chosen.append(path)
                joined = True
    return (*chosen[:1], *sorted(chosen[1:])) if default in chosen else tuple(sorted(chosen))


def _continues(log: list[MappedFile], files: list[MappedFile]) -> bool:
    """Whether `files` belong to the same stream as `log`; any files continue an empty one."""
    if not log:
        return True
    size = log[0].size
    taken = {file.start for file in log}
    if any(file.size != size or file.start in taken for file in files):
        return False
    return any(file.start + size in taken or file.start - size in taken for file in files)


def log_files(directory: Path) -> list[MappedFile]:
    """The files of a directory that has only log files (`commitlog`: also other entries), else none."""
    names = [name for name in _names(directory) if not name.startswith(BARRIER_PREFIX)]
    if not names or len(names) > _LARGEST_DIRECTORY:
        return []
    usual = all(len(name) == NAME_DIGITS and name.isdigit() for name in map(plain_name, names))
    return MappedFileQueue.open(directory).files if usual or directory.name == COMMIT_LOG else []


def _subdirectories(root: Path) -> list[Path]:
    """Directories that might be another part of the commit log: unknown names, and directories inside them."""
    strange = (path for path in _directories(root) if path.name not in DIRECTORIES)
    first = [path for path in strange if not path.name.startswith(DLEDGER_PREFIX)]
    return [*first, *(path for parent in first for path in _directories(parent))]


def _directories(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _names(directory: Path | str) -> list[str]:
    """Names in a directory, none if it is missing. Raises Unreadable."""
    try:
        return os.listdir(directory)  # noqa: PTH208 (there may be many)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise from_os_error(error, directory) from error


def _check_directory(root: Path) -> None:
    """Raise NotAStore, Missing, Unreadable unless `root` is a directory that can be listed."""
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            raise NotAStore("not a store directory but a file", path=root, hint=_parent_hint(root))
        os.scandir(root).close()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and broken_link(root) is None:
            raise Missing("no such directory", path=root, hint=where_instead(root, "check the path")) from error
        raise from_os_error(error, root) from error


def _parent_hint(path: Path) -> str:
    above = (each for each in path.absolute().parents[:4] if (each / COMMIT_LOG).is_dir())
    if root := next(above, None):
        return f"name the store's root directory instead ({root}?)"
    single = "" if path.is_dir() else "; mqstore dump and inspect read a single file"
    return f"name the store's root directory instead{single}"


def where_instead(root: Path, otherwise: str = _LACKS) -> str:
    """Hint what to name instead of a directory that is not a store, or not there: a job may have begun to make it."""
    if not root.exists():
        begun = f"{root.parent}/.{root.name}{UNFINISHED}"
        return f"run the job again that was making it, or remove {begun}" if os.access(begun, os.F_OK) else otherwise
    if root.name in DIRECTORIES or log_files(root):
        return _parent_hint(root)
    if (root / "store" / COMMIT_LOG).is_dir():
        return f"did you mean {root / 'store'}?"
    return otherwise


def refuse_compressed(layout: Layout) -> None:
    """Raise Unsupported for a store with a compressed file in a directory of numbered files."""
    for directory in _numbered_directories(layout):
        for name in _names(directory):
            if is_compressed_name(name) and plain_name(name).isdecimal():
                raise Unsupported(
                    "cannot change a store with a compressed file: no broker reads it",
                    path=f"{directory}/{name}",
                    hint="decompress the file in its directory",
                )


def _numbered_directories(layout: Layout) -> Iterator[str]:
    """Yield the directories of a store whose files have numbers as names."""
    yield from map(os.fspath, layout.commit_log_directories)
    yield from map(os.fspath, (layout.index, layout.timer_log))
    for parent in (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext):
        yield from (queue.path for queue in queue_directories(parent))


_NO_NAMES = frozenset({"", ".", ".."})
LARGEST_QUEUE_ID = (1 << 31) - 1


class QueueDirectory(NamedTuple):
    """A topic-queue and the directory of its files."""

    topic: str
    queue_id: int
    path: str


def queue_directories(consume_queue: str | os.PathLike[str]) -> Iterator[QueueDirectory]:
    """Yield the topic-queues below a `consumequeue` directory, sorted; none if it is missing.

    Only directories whose name is a number are queues. The directory of an LMQ with `/` in its name lies inside that
    of another topic, where no broker finds it again (spec 2.1, 2.9). Raises Unreadable.
    """
    for topic, path in sorted(_directories_in(os.fspath(consume_queue)).items()):
        yield from queues_of_topic(topic, path)


def queues_of_topic(topic: str, directory: str) -> Iterator[QueueDirectory]:
    """Yield the queues in a topic's directory, by queue id. Raises Unreadable."""
    there = _directories_in(directory)
    numbers = sorted(int(name) for name in there if name.isdecimal() and str(int(name)) == name)
    yield from (QueueDirectory(topic, number, there[str(number)]) for number in numbers if number <= LARGEST_QUEUE_ID)


def queue_directory(consume_queue: Path, topic: str, queue_id: int) -> Path:
    """Directory of a topic-queue below `consume_queue`. A topic with `/`, which 4.9 accepts for an LMQ, names one in
    another (spec 2.9). Raises InvalidInput for a topic that cannot name a directory, and a negative queue id.
    """
    if "\0" in topic or _NO_NAMES & set(topic.split("/")) or len(os.fsencode(topic)) > 255:
        raise InvalidInput(f"this topic cannot be the name of a directory: {topic!r}")
    if queue_id < 0:
        raise InvalidInput(f"queue id must not be negative: {queue_id}")
    return consume_queue / topic / str(queue_id)


def has_topic(consume_queue: str | os.PathLike[str], topic: str) -> bool:
    """Whether a topic has its own directory below `consumequeue`."""
    if not topic or "\0" in topic or _NO_NAMES & set(topic.split("/")):
        return False
    return os.path.isdir(os.path.join(consume_queue, topic))  # noqa: PTH112, PTH118


def has_queues_of(consume_queue: str | os.PathLike[str], topic: str) -> bool:
    """Whether the directory of a topic has queues. Raises Unreadable."""
    return has_topic(consume_queue, topic) and any(queues_of_topic(topic, os.path.join(consume_queue, topic)))  # noqa: PTH118


def no_topic(consume_queue: str | os.PathLike[str], topic: str) -> NotFound:
    """The error for a topic without queues. Its hint compares many names, and most such errors nobody sees."""
    path = os.fspath(consume_queue)
    return NotFound(f"no such topic: {topic}", path=path, hint=partial(_similar_topic, path, topic))


def _similar_topic(path: str, topic: str) -> str:
    hint = did_you_mean(topic, _directories_in(path).keys() - {topic}, "mqstore inspect lists the topics")
    return hint + "; if the topic was deleted, mqstore dump --topic shows what the log still has of it"


def _directories_in(parent: str) -> dict[str, str]:
    """Paths of the directories in `parent`, by name; none if it is missing. Raises Unreadable."""
    try:
        with os.scandir(parent) as entries:
            return {entry.name: entry.path for entry in entries if is_directory(entry)}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise from_os_error(error, parent) from error
