"""`repair --all --apply` over the corpus of damage, with what must hold of every store afterwards.

One run is enough. `verify` finds no error, or one that is named beyond repair with its reason; no message
that could be read is lost; undo gives each byte back; the real classes load the store and change
nothing: those of the version that wrote it, and of a plain store those of all six versions.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.message import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused, Unsupported
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Mark
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.recheck import Unrepairable, reanalyze
from mqstore.store.repair.repair import Repair, analyze, replan
from mqstore.store.salvage.runs import Grade, grades
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo

from .. import recovery_cases
from ..recovery_cases import Case, config_of, sparse_copy
from ..slices import pick
from ..store.repair.mended import find_unrepairable
from ..store.session.test_undo import everything
from .conftest import Judge
from .oracle import VERSIONS, OracleDied
from .served import DATA, Row, changed, loaded

pytestmark = [pytest.mark.interop, pytest.mark.slow]

NOW_MS = 1_795_400_000_000
_PER_RUN = 40
"""Repaired stores that wait for the classes: as many as one JVM is asked about."""
_NO_REASON = "mqstore explain "
_OLDEST = "4.3.1"
WRITERS = VERSIONS[:-1]
"""What versions the stores of the cases are of: none is of the newest."""
_LONG_HOSTS = int(SysFlag.BORN_V6 | SysFlag.STORE_V6)

Messages = dict[int, tuple[bytes, int, int, bytes]]


@dataclass
class Tally:
    """What became of the cases. beyond: codes that stay, refused: what no repair changes."""

    cases: int = 0
    loads: Counter[str] = field(default_factory=Counter)
    beyond: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{self.cases} stores repaired", f"loads: {_told(self.loads)}"]
        rows += [f"beyond repair: {_told(self.beyond)}", f"refused: {_told(self.refused)}"]
        return "\n".join([*rows, *self.wrong])


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "none"


def name_of(case: Case) -> str:
    """What tells a case from the others."""
    return f"{case['base']} {case['kind']}"


def whole_messages(root: Path, config: BrokerConfig) -> Messages:
    """By position, (topic, queue, offset, body) of each record before the end that is proven."""
    found: Messages = {}
    with StoreReader(root, config) as store:
        end = store.log_end.position
        for item in store.log.scan():
            if not isinstance(item, Batch) or item.mark is not Mark.NONE:
                continue
            whole = item.take((grades(item.columns) == Grade.WHOLE) & (item.position < end))
            columns = whole.columns
            rows = zip(
                columns.ragged("topic").tolist(),
                columns.ints("queue_id").tolist(),
                columns.ints("queue_offset").tolist(),
                columns.ragged("body").tolist(),
                strict=True,
            )
            found |= dict(zip(whole.position.tolist(), rows, strict=True))
    return found


def has_long_hosts(root: Path, config: BrokerConfig) -> bool:
    """Some record has a host of IPv6: the oldest broker takes it for damage and cuts the log."""
    with StoreReader(root, config) as store:
        batches = (item for item in store.log.scan(crc=False) if isinstance(item, Batch))
        return any(np.any(b.columns.ints("sys_flag") & _LONG_HOSTS) for b in batches)


def repaired(root: Path, config: BrokerConfig, version: str) -> tuple[str, Repair]:
    """Repair all, once: (session, the look at it afterwards). Raises Refused, Unsupported."""
    found = analyze(Layout.open(root, config), Choice(), version, NOW_MS)
    if found.nothing_to_do:
        return "", found
    done = apply(
        Layout.open(root, config),
        found.plan,
        lambda: replan(Layout.open(root, config), found.request),
        Files(),
        command="repair",
    )
    return done.session, reanalyze(found)


def check(case: Case, work: Path, tally: Tally) -> Path | None:
    """Repair one store; None where that is refused. What does not hold is noted in the tally."""
    root = recovery_cases.damaged(case, work)
    config, name = config_of(case, root), name_of(case)
    before, held = everything(root), whole_messages(root, config)
    try:
        session, after = repaired(root, config, case["version"])
    except (Refused, Unsupported) as error:
        tally.refused[str(error).split(":")[0]] += 1
        assert everything(root) == before
        return None
    tally.cases += 1
    for edit in after.plan.edits[:2]:
        tally.wrong.append(f"{name}: left to do: {edit.path}: {edit.codes} {edit.reason}")
    note_beyond(find_unrepairable(Layout.open(root, config), case["version"]), name, tally)
    truth = whole_messages(recovery_cases.base(case["base"], work), config)
    left = whole_messages(root, config)
    lost = [at for at, it in held.items() if left.get(at) not in (it, truth.get(at, it))]
    if lost:
        tally.wrong.append(f"{name}: {len(lost)} messages lost, the first at {lost[0]}")
    kept = work / "repaired" / f"{tally.cases}"
    shutil.copytree(root, kept, copy_function=sparse_copy)
    if session:
        layout = Layout.open(root, config)
        undo(layout, session_to_undo(layout, session), Files())
    if everything(root) != before:
        tally.wrong.append(f"{name}: undo does not give every byte back")
    return kept


def note_beyond(rows: list[Unrepairable], name: str, tally: Tally) -> None:
    """What verify still finds has a reason of its own."""
    tally.beyond.update(row.code for row in rows)
    for row in rows:
        if row.command.startswith(_NO_REASON):
            tally.wrong.append(f"{name}: {row.code} stays without a reason: {row.message}")


def load(stores: list[tuple[Case, Path]], judge: Judge, work: Path, tally: Tally) -> None:
    """Let the classes of one version load each store: nothing changes."""
    for case, kept in stores:
        config, name = config_of(case, kept), name_of(case)
        if judge.version == _OLDEST != case["version"] and has_long_hosts(kept, config):
            tally.loads[f"{_OLDEST} not asked, hosts of IPv6"] += 1
            continue
        try:
            answer = asked(case, kept, judge, work / "loaded")
        except (AssertionError, OracleDied) as error:
            tally.wrong.append(f"{name}: {judge.version} does not load it: {str(error)[:600]}")
            continue
        tally.loads[judge.version] += 1
        if wrong := changed(answer, *DATA):
            tally.wrong.append(f"{name}: {judge.version} changes {sorted(wrong)[:3]}")


def asked(case: Case, kept: Path, judge: Judge, root: Path) -> Row:
    """What the classes say of a copy, asked once more where they took too long: a start that hangs
    does so again, one on a busy machine does not. Raises OracleDied."""
    more = {"topics": case["topics"]} if "topics" in case else {}
    for last in (False, True):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(kept, root, copy_function=sparse_copy)
        try:
            return loaded(judge, root, dict(config_of(case, root).items()), start=False, **more)
        except OracleDied:
            if last:
                raise
    raise AssertionError


def groups(cases: list[Case]) -> Iterator[list[Case]]:
    """As many cases at a time as one JVM is asked about."""
    for first in range(0, len(cases), _PER_RUN):
        yield cases[first : first + _PER_RUN]


def run(cases: list[Case], oracle: Callable[[str], Judge], work: Path, *, versions: tuple[str, ...]) -> Tally:
    """All of it. versions: further ones whose classes are asked besides the one that wrote a store."""
    tally = Tally()
    for group in groups(cases):
        stores: list[tuple[Case, Path]] = []
        for case in group:
            kept = check(case, work, tally)
            if kept is not None:
                stores.append((case, kept))
        for version in VERSIONS:
            mine = [row for row in stores if version in (row[0]["version"], *versions)]
            if mine:
                load(mine, oracle(version), work, tally)
        shutil.rmtree(work / "repaired", ignore_errors=True)
    print(tally)
    return tally


def of_version(version: str, cases: Sequence[Case], name: str) -> list[Case]:
    """The cases of this run whose store that version wrote."""
    return pick([case for case in cases if case["version"] == version], f"{name} {version}")


@pytest.mark.parametrize("version", WRITERS)
def test_every_damaged_store_is_repaired(version: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    cases = of_version(version, recovery_cases.all_cases(), "corpus")
    tally = run(cases, oracle, tmp_path, versions=VERSIONS)
    assert not tally.wrong, str(tally)


@pytest.mark.parametrize("version", WRITERS)
def test_every_damaged_store_with_features_is_repaired(
    version: str, oracle: Callable[[str], Judge], tmp_path: Path
) -> None:
    cases = of_version(version, recovery_cases.all_feature_cases(), "corpus of features")
    tally = run(cases, oracle, tmp_path, versions=())
    assert not tally.wrong, str(tally)
