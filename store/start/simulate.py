"""A broker's load, recovery and first dispatch, simulated in memory (spec 7.1 to 7.5).

`simulate` only reads files and has no other effects: the same snapshot and profile give the same outcome. The outcome
is the state that the broker reaches; `predict` turns it into words and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...formats.derive import Columns
from ..audit.verified import VerifiedLog, VerifiedRun
from ..broker.dispatch import unannounceable
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import (
    BodyCheck,
    LoadedFile,
    LoadFailure,
    Refusal,
    directory_for_file,
    load_files,
    size_at,
    truncate,
    walk,
)
from ..broker.profiles import DLEDGER_LOAD, Profile, QueueCut, ReputStart
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..counted import counted
from ..index.compare import load_index
from ..queues.start import ExtDamage, ExtRules
from ..queues.start_rocksdb import Commit, RowDamage
from ..timer.start import QUEUE as TIMER_QUEUE
from ..timer.start import recover_timer
from .dledger import recover_dledger
from .log import LARGEST_ARRAY_BYTES, LogWalk, PhantomRecord, Switches, confirmed, start_file
from .outcome import Outcome, PendingUnits, UndispatchableRecord
from .queue_stores import (
    CastFails,
    DatabaseDispatch,
    DatabaseSearch,
    LmqThrows,
    NotReadable,
    compare_with_files,
    files_alone_needed,
    load_database,
    queue_stores,
)

_CASES = {CastFails: "topics", LmqThrows: "light", NotReadable: "behind", RowDamage: "row"}


def simulate(
    snapshot: Snapshot,
    profile: Profile,
    switches: Switches | None = None,
    now_ms: int = 0,
    *,
    verified: VerifiedLog | None = None,
    commit: Commit = Commit.BEFORE_CUT,
) -> Outcome:
    """Simulate a broker's start. Raises Unreadable, Unsupported.

    now_ms: the broker's clock, which limits how far back an old timer reads. verified: parts of the log that need no
    walk. commit: when units of queues in a RocksDB are written.
    """
    switches = switches or Switches()
    rules = profile.load if snapshot.layout.dledger is None else DLEDGER_LOAD  # DLedger accepts no odd file
    outcome = Outcome(profile, snapshot, switches, load_files(snapshot.log, snapshot.log_file_bytes, rules))
    outcome.stores, outcome.commit = queue_stores(snapshot.layout, profile), commit
    if switches.consume_queue_ext:
        outcome.ext = ExtRules.of(snapshot)
    outcome.refusal = (
        outcome.log.refusal
        or directory_for_file(snapshot, profile.load)
        or _load_queues(outcome)
        or _load_database(outcome)
        or files_alone_needed(outcome.stores, snapshot.layout, profile)
    )
    if outcome.refusal:
        return outcome
    crashed = snapshot.abort
    outcome.index = load_index(snapshot.index, crashed, snapshot.checkpoint["index_msg_timestamp"])
    try:
        _recover_queues(outcome, verified)
    except ExtDamage as damage:
        outcome.refusal = Refusal("ext-unreadable", damage.reason, damage.path)
        return outcome
    try:
        if outcome.log.files and snapshot.layout.dledger is not None:
            recover_dledger(outcome, PendingUnits(outcome))
        elif outcome.log.files:
            _recover_log(outcome, verified)
        else:
            _without_log(outcome)
    except UndispatchableRecord as error:
        path = str(snapshot.layout.commit_log_directories[0])
        outcome.refusal = Refusal("poison-record", error.reason, path)
        return outcome
    except (CastFails, LmqThrows, NotReadable, RowDamage) as error:
        case = "queue-database-" + _CASES[type(error)]
        outcome.refusal = Refusal(case, str(error), str(outcome.stores.database))
        return outcome
    _correct_min_offsets(outcome)
    if outcome.refusal is None and outcome.database is not None:
        outcome.refusal = compare_with_files(outcome.stores, outcome.database, outcome.queues, commit)
    if outcome.refusal is None and switches.timer_wheel_enable:
        log, queue = (outcome.log_start, outcome.log_end), outcome.read_queues.get(TIMER_QUEUE)
        found = recover_timer(snapshot, profile, log, queue, now_ms)
        if isinstance(found, Refusal):
            outcome.refusal = found
        else:
            outcome.timer = found
    if outcome.refusal is None:
        try:
            _dispatch_after_start(outcome, verified)
        except UndispatchableRecord as error:
            outcome.hangs = error.reason
    return outcome


def all_outcomes(
    snapshot: Snapshot, profile: Profile, switches: Switches | None = None, *, verified: VerifiedLog | None = None
) -> Iterator[Outcome]:
    """Yield the outcomes of a start, the usual first: a thread may race with it (B42, B46). Raises as `simulate`."""
    usual = simulate(snapshot, profile, switches, verified=verified)
    yield usual
    database = usual.database
    if database is None or not database.wrote:
        return
    if database.can_keep_earlier(usual.stores.reads):
        yield simulate(snapshot, profile, switches, verified=verified, commit=Commit.BACKWARDS)
    if not (usual.stores.files or database.ahead or database.backwards):
        return  # nothing is cut or compared, so the moment of writing makes no difference
    seen = [_result_of(usual)]
    others = (Commit.BEFORE_START, Commit.LAST, Commit.IN_PARTS)
    for commit in others if database.backwards else others[:-1]:
        other = simulate(snapshot, profile, switches, verified=verified, commit=commit)
        if (ends := _result_of(other)) not in seen:
            seen.append(ends)
            yield other


def _result_of(outcome: Outcome) -> object:
    database = outcome.database
    if outcome.refusal is not None or database is None:
        return outcome.refusal
    return database.row, dict(database.rows)


def _load_queues(outcome: Outcome) -> Refusal | None:
    """Load the queues, simple ones first. A queue in the directory of the other type is refused."""
    if not outcome.stores.files:
        return None
    snapshot, knows_batches = outcome.snapshot, outcome.profile.queues.batches
    kinds = [(snapshot.queues, False), (snapshot.batch_queues, True)]
    for queues, batches in kinds[: 1 + knows_batches]:
        for queue, entries in queues.items():
            if knows_batches and (queue.topic in snapshot.batch_topics) is not batches:
                found, wanted = ("BatchCQ", "SimpleCQ") if batches else ("SimpleCQ", "BatchCQ")
                reason = f"The queue type of topic: {queue.topic} should be {found}, but is {wanted}"
                return Refusal("queue-type", f"RuntimeException: {reason}", queue.topic)
            refusal = _load_queue(outcome, queue, entries)
            if refusal is not None:
                return refusal
    return None


def _load_database(outcome: Outcome) -> Refusal | None:
    found = load_database(outcome.stores, outcome.snapshot)
    if isinstance(found, Refusal):
        return found
    outcome.database, rules = found, outcome.profile.database
    if found is not None and rules is not None:
        found.looks_ahead, found.earlier_stay = rules.looks_ahead, outcome.commit is Commit.BACKWARDS
    return None


def _load_queue(outcome: Outcome, name: QueueId, entries: tuple[DirectoryEntry, ...]) -> Refusal | None:
    snapshot, rules = outcome.snapshot, outcome.profile.load
    queue = outcome.new_queue(name)
    loaded = load_files(entries, queue.file_bytes, rules)
    if loaded.refusal:
        return loaded.refusal._replace(case=f"queue-{loaded.refusal.case}")
    outcome.queue_deletions += loaded.deleted
    queue.load(loaded.files)
    outcome.queues[name] = queue
    if queue.ext is not None:
        loaded = load_files(snapshot.ext.get(name, ()), queue.ext.file_bytes, rules)
        if loaded.refusal:
            return loaded.refusal._replace(case=f"ext-{loaded.refusal.case}")
        queue.ext.load(loaded.files)
        outcome.queue_deletions += loaded.deleted
    return None


def _recover_queues(outcome: Outcome, verified: VerifiedLog | None) -> None:
    valid = verified.offsets() if verified else {}
    for name, queue in outcome.queues.items():
        if verified and (known := verified.queue_of(name, outcome.snapshot.queues.get(name, ()))):
            queue.known = known.units
        queue.recover(valid.get(name, (0, 0)))
    outcome.queues_end = _queues_end(outcome)


def _queues_end(outcome: Outcome) -> int:
    """Highest log position that a queue reaches (D), -1 without queues."""
    return max([-1, *(queue.max_physical for queue in outcome.queues.values())])


def _without_log(outcome: Outcome) -> None:
    """Without a commit log file, delete the files of the queues (spec 7.4, step 5)."""
    if outcome.snapshot.abort or outcome.profile.queues.emptied_when_clean:
        for queue in outcome.queues.values():
            queue.clear()
        if outcome.database is not None:
            outcome.database.destroy()


def _recover_log(outcome: Outcome, verified: VerifiedLog | None) -> None:
    snapshot, profile, files = outcome.snapshot, outcome.profile, outcome.log.files
    switches, database = outcome.switches, outcome.database
    crashed = snapshot.abort
    behind, search = outcome.dispatched, None
    since = None if crashed else behind
    if database is not None:
        database.log_start = outcome.log_start
        assert profile.database is not None
        search = DatabaseSearch(database.dispatch_from, outcome.stores, profile.database, outcome.stores.extra_files)
    outcome.start = start_file(snapshot, files, profile, outcome.queues_end, switches, search)
    first = files[outcome.start.number]
    outcome.start_path = first.entry.path if first.entry else None
    outcome.scan_start = first.start
    skipped = _skipped(outcome, first, behind)
    if skipped > snapshot.log_file_bytes:
        raise RowDamage(f"IllegalArgumentException: newPosition > limit ({skipped})")
    scan = LogWalk(snapshot, list(files), profile, crashed, switches.body_check)
    outcome.walk = scan
    dispatches = crashed or profile.dispatch.when_clean
    waiting, nothing_new_before, database_dispatch = PendingUnits(outcome), _nothing_new_before(outcome), None
    if database is not None:
        tells = snapshot.layout.broker_config.get_bool("enableMultiDispatch")
        how = switches.dispatching(profile.dispatch)
        database_dispatch = DatabaseDispatch(outcome.stores, database, how, profile.version, tells=tells)
    if verified is not None:
        scan.runs = {run.begin: run for run in verified.runs}
        made_by, made = _made_by(outcome, verified)
        scan.passes = lambda run: (
            not dispatches
            or (database_dispatch is not None and database_dispatch.takes(run, since, made_by))
            or (run.end <= nothing_new_before and waiting.takes(run, made=made))
        )
    with waiting:
        for batch in scan.batches(outcome.start.number, skipped):
            if not dispatches:
                continue
            if isinstance(batch, PhantomRecord):
                waiting.put_phantom(batch)
                continue
            columns = confirmed(snapshot, profile, batch.columns) if crashed else batch.columns
            if outcome.stores.files:
                waiting.add(columns, since)
            if database_dispatch is not None:
                database_dispatch.add(columns, since)
    end = scan.end
    outcome.refusal = _too_large(outcome, scan)
    if database_dispatch is not None:
        database_dispatch.hand_out()
        if database_dispatch.undispatchable is not None:
            outcome.hangs = UndispatchableRecord(database_dispatch.undispatchable).reason
    _cut_at(outcome, end, verified)


def _too_large(outcome: Outcome, scan: LogWalk) -> Refusal | None:
    """Return why the load dies at the record where the walk ended: its size is that of no array, and the broker
    allocates a damaged size before it checks it (spec 7.12, B29).
    """
    entry, failure = scan.files[scan.end_file].entry, scan.failure
    if outcome.profile.record.bounded or entry is None or failure is None or failure.passed:
        return None
    size = size_at(outcome.snapshot, entry, failure.offset)
    if size <= LARGEST_ARRAY_BYTES:
        return None
    reason = f"OutOfMemoryError at the record at {scan.end}, whose damaged size is {counted(size, 'byte', form=',')}"
    return Refusal("record-too-large", reason, entry.path)


def _made_by(outcome: Outcome, verified: VerifiedLog) -> tuple[Dispatching | None, bool]:
    """The rules by which units were made where there were no queues, and whether they are this broker's rules."""
    rules = outcome.profile.dispatch
    made_by = None if rules.confirmed_only else verified.made_by
    return made_by, outcome.switches.dispatching(rules).same_units(made_by)


def _cut_at(outcome: Outcome, end: int, verified: VerifiedLog | None) -> None:
    """Cut queues and log where the last record ends."""
    database = outcome.database
    if database is not None:
        if outcome.commit in (Commit.BEFORE_CUT, Commit.IN_PARTS, Commit.BACKWARDS):
            database.commit(in_parts=outcome.commit is Commit.IN_PARTS)
        database.cut(end)
    if _is_cut(outcome, end):
        valid = verified.offsets() if verified and verified.end <= end else {}
        for name, queue in outcome.queues.items():
            queue.cut(end, valid.get(name, (0, 0)))
    outcome.log_removed = truncate(outcome.log.files, end, outcome.snapshot.log_file_bytes)
    if database is not None:  # a file whose name does not follow may now be the first
        database.log_start = outcome.log_start


def _nothing_new_before(outcome: Outcome) -> int:
    """Records up to this log position add nothing to a RocksDB of queues."""
    if outcome.database is None:
        return 1 << 63
    return 0 if outcome.snapshot.abort else outcome.database.dispatch_from


def _skipped(outcome: Outcome, first: LoadedFile, behind: int) -> int:
    """Bytes at the front of the first file that an accelerated recovery skips."""
    rules = outcome.profile.database
    counts = outcome.snapshot.abort or (rules is not None and rules.accelerated_when_clean)
    if not (outcome.stores.accelerated and counts):
        return 0
    if outcome.stores.files:
        flushed = outcome.snapshot.checkpoint["logics_physical_offset"]
        row = outcome.database.dispatch_from if outcome.database is not None else flushed
        behind = min(flushed, row)
    return max(0, behind - first.start)


def _is_cut(outcome: Outcome, end: int) -> bool:
    rule = outcome.profile.queues.cut
    if rule is QueueCut.AFTER_CRASH:
        return outcome.snapshot.abort
    reached = outcome.queues_end if rule is QueueCut.AHEAD_BEFORE else _queues_end(outcome)
    return reached >= end


def _correct_min_offsets(outcome: Outcome) -> None:
    log_start = outcome.log_start if outcome.log.files else -1
    for name, queue in outcome.queues.items():
        if not queue.correct_min_offset(log_start):
            path = name.below(outcome.snapshot.layout.consume_queue)
            outcome.refusal = Refusal(
                "queue-without-unit", "IllegalArgumentException: newPosition < 0: (-20 < 0)", str(path)
            )
            return


def _dispatch_after_start(outcome: Outcome, verified: VerifiedLog | None) -> None:
    """Dispatch what lies behind the queues, without checking bodies, as 4.9 does (spec 7.5)."""
    if outcome.profile.dispatch.reput is not ReputStart.QUEUES_END or not outcome.log.files:
        return
    position = max(outcome.log_start, _queues_end(outcome))
    end = outcome.log_end
    size, files = outcome.snapshot.log_file_bytes, list(outcome.log.files)
    known = LogWalk(outcome.snapshot, files, outcome.profile, crashed=False)
    with PendingUnits(outcome) as waiting:
        if verified is not None:
            made = _made_by(outcome, verified)[1]
            known.runs = {run.begin: run for run in verified.runs}
            known.passes = lambda run: run.end <= min(end, _written_end(outcome, run)) and waiting.takes(run, made=made)
        while position < end:
            file = _file_at(outcome, position)
            if file is None:
                outcome.hangs = f"dispatch waits for ever at {position}: no file holds it"
                return
            # a file whose name is no multiple of its size is read at another place
            run = None if file.start % size else known.run_at(file, position - file.start)
            position = run.end if run is not None else _reput_file(outcome, waiting, file, position, end)
    _correct_min_offsets(outcome)


def _written_end(outcome: Outcome, run: VerifiedRun) -> int:
    """Log position up to which the file of a run is written."""
    file = _file_at(outcome, run.begin)
    return file.start + file.wrote if file is not None else run.begin


def _file_at(outcome: Outcome, position: int) -> LoadedFile | None:
    """The file that `findMappedFileByOffset` returns."""
    size = outcome.snapshot.log_file_bytes
    return next((file for file in outcome.log.files if file.start <= position < file.start + size), None)


def _reput_file(outcome: Outcome, waiting: PendingUnits, file: LoadedFile, position: int, end: int) -> int:
    """Dispatch the rest of a file; return the log position where to continue."""
    assert file.entry is not None
    size = outcome.snapshot.log_file_bytes
    written = min(file.wrote, end - file.start)
    content = outcome.snapshot.bytes_of(file.entry)
    offset = position % size  # a file whose name is no multiple of its size is read at another place
    if offset >= written:
        outcome.hangs = f"dispatch waits for ever at {position}: nothing is written there"
        return end
    while offset < written:
        failure: LoadFailure | None = None
        for item in walk(content, offset, outcome.profile.record, BodyCheck.NONE, end=written):
            if isinstance(item, Columns):
                waiting.add(item, None)
                if (row := unannounceable(item)) is not None:
                    raise UndispatchableRecord(int(item.ints("physical_offset")[row]))
            else:
                failure = item
        if failure is None:
            break
        if failure.passed:
            return file.start + size
        if failure.size <= 0:
            return file.start + (size if written == size else written)
        offset = failure.offset + failure.size
    return file.start + (size if offset >= size else max(offset, written))
