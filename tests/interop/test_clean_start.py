"""What a start of a real broker changes in a store that is in order, and in a recovered one.

docs/clean-start.md has the list. `--rewrite` puts there what the versions of this run really do.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import replan
from mqstore.store.session.apply import apply
from tests.recovery_cases import sparse_copy
from tests.slices import DEFAULT_SEED, SEED, rng, share
from tests.store.recover.recovered import started as outcome_of
from tests.store.recover.recovered import units_of

from .conftest import Judge
from .oracle import VERSIONS
from .random_cases import HALF_AT_END, HALF_LIGHT, Cases, RandomCase, RandomStore, known_features
from .served import Row, loaded

pytestmark = pytest.mark.interop

DOCUMENT = Path(__file__).parents[2] / "docs" / "clean-start.md"
TABLE_MARK = "<!-- tests/interop/test_clean_start.py -->\n"
#: What is asked of the judge, and how the documentation calls it.
MOMENTS: dict[str, Row] = {"load": {"start": False}, "run": {"exit": "halt"}, "stop": {"exit": "clean"}}
#: A broker brings to disk what it has in memory every second.
FLUSHED = {"do": "wait", "ms": 1_500}
HEAD = f"| file | store | change | {' | '.join(VERSIONS)} |\n" + "|---" * (3 + len(VERSIONS)) + "|"
EVERY_STORE = "any"
AS_MUCH = {"made": ("made", "changed", "touched"), "touched": ("touched", "changed")}
#: Broken alone they are no matter for a recovery: a broker rewrites them.
LEFT_TO_BROKERS = ("checkpoint", "config", "timer check", "timer metrics", "lock")
RECOVERED_PER_VERSION = 150
#: At most so many are left to a person.
REFUSED_SHARE = 0.25
RECOVERED_IN_EVERY_RUN = range(5, 96, 18)
MADE_MS = 1_990_300_000_000

Found = dict[tuple[str, str], str]


def shape(path: str) -> str:
    """A file's name without what differs from store to store."""
    return re.sub(r"\d{6,}", "N", re.sub(r"^(\w*consumequeue\w*)/.*/", r"\1/…/", path))


def changes(answer: Row) -> set[tuple[str, str]]:
    """(file, change) of a life of a store. A file that was only touched has its bytes."""
    before, after = answer["files_before"], answer["files_after"]
    found = set()
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            found.add((shape(name), "made" if old is None else "removed"))
        elif old.get("sha256") != new.get("sha256"):
            found.add((shape(name), "changed"))
        elif old.get("mtime") != new.get("mtime"):
            found.add((shape(name), "touched"))
    return found


def started(judge: Judge, store: RandomStore, root: Path, work: Path, *steps: Row) -> Found:
    """(file, change) → the moments at which a start of a copy has changed it."""
    found: dict[tuple[str, str], list[str]] = {}
    for moment, how in MOMENTS.items():
        copy = work / "started"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy, copy_function=sparse_copy)
        meanwhile = steps if how.get("start", True) else ()
        answer = loaded(judge, copy, store.config, *meanwhile, topics=store.topics, **how)
        for change in changes(answer):
            found.setdefault(change, []).append(moment)
    return {change: ", ".join(moments) for change, moments in found.items()}


def documented(version: str, *features: str) -> Found:
    """What the documentation says for a store with features."""
    return {
        (file, change): cells[version]
        for (file, store, change), cells in _rows().items()
        if store in (EVERY_STORE, *features) and cells.get(version)
    }


def _rows() -> dict[tuple[str, str, str], dict[str, str]]:
    """The table: (file, store, change) → version → moments."""
    table = DOCUMENT.read_text(encoding="utf-8").partition(TABLE_MARK)[2]
    rows = {}
    for line in table.splitlines()[2:]:
        file, store, change, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
        rows[file, store, change] = {
            version: cell for version, cell in zip(VERSIONS, cells, strict=True) if cell != "-"
        }
    return rows


def document(by_feature: dict[str, Found], version: str) -> None:
    """Put what a version does into the documentation."""
    rows = _rows()
    for cells in rows.values():
        cells.pop(version, None)
    for feature, found in by_feature.items():
        for (file, change), moments in found.items():
            common = all(other.get((file, change)) == moments for other in by_feature.values())
            store = EVERY_STORE if common else feature
            rows.setdefault((file, store, change), {})[version] = moments
    lines = [HEAD]
    for (file, store, change), cells in sorted(rows.items()):
        if cells:
            texts = " | ".join(cells.get(other, "-") for other in VERSIONS)
            lines.append(f"| `{file}` | {store} | {change} | {texts} |")
    head = DOCUMENT.read_text(encoding="utf-8").partition(TABLE_MARK)[0]
    DOCUMENT.write_text(f"{head}{TABLE_MARK}" + "\n".join(lines) + "\n", encoding="utf-8")


def clean(judge: Judge, feature: str, work: Path, *steps: Row) -> Found:
    """What a start changes in a store with a feature that was shut down in order."""
    root = work / feature
    store = RandomStore.made(judge, root, rng(f"clean {feature}"), feature, exit="clean")
    return started(judge, store, root, work, *steps)


def assert_known(found: Found, version: str, feature: str) -> None:
    """Nothing is changed at a moment that the documentation does not tell."""
    known = documented(version, feature)
    for change, moments in found.items():
        told = set(known.get(change, "").split(", "))
        assert set(moments.split(", ")) <= told, f"{feature}, {change}: run with --rewrite"


def test_a_start_of_a_plain_clean_store(judge: Judge, tmp_path: Path) -> None:
    assert_known(clean(judge, "plain", tmp_path), judge.version, "plain")


@pytest.mark.slow
def test_a_start_of_a_clean_store(judge: Judge, tmp_path: Path, rewrite: bool) -> None:
    features = known_features(judge.version)
    found = {name: clean(judge, name, tmp_path, FLUSHED) for name in features}
    if rewrite:
        document(found, judge.version)
    for feature, changes in found.items():
        assert_known(changes, judge.version, feature)
        if SEED == DEFAULT_SEED:  # a store of another one need not have all that is told
            assert changes == documented(judge.version, feature), f"{feature}: run with --rewrite"


def kept(root: Path, case: RandomCase, policy: Policy) -> Plan:
    """Recover a store under a policy. Raises Refused."""

    def plan() -> Plan:
        return replan(Layout.open(root, case.config), case.version, options)

    options = RecoveryOptions(policy, MADE_MS, (case.version.rpartition(".")[0],))
    made = plan()
    apply(Layout.open(root, case.config), made, plan, Files())
    return made


def served(judge: Judge, store: RandomStore, root: Path, *more: Row) -> tuple[Row, list[Any]]:
    """The judge's answer for a store that must load, and what its steps said: a pull of all first."""
    steps = ({"do": "get"}, *more)
    answer = loaded(judge, root, store.config, *steps, topics=store.topics, start=True)
    return answer, answer["steps"]


def places(pulled: list[Row]) -> dict[tuple[str, int], tuple[int, str]]:
    """Queue and queue offset → position and body of every message that a consumer pulls."""
    return {
        (row["queue"], row["unit"]): (row["physical_offset"], row["sha1"])
        for row in pulled
        if "sha1" in row and row["look_ok"]
    }


def harmless(case: RandomCase, root: Path) -> set[int]:
    """Positions of the records that are in a damaged store as they were."""
    victim = case.store.victim
    found = set()
    for span in victim.spans:
        there = root / span.path.relative_to(victim.root)
        if there.is_file() and _bytes(there, span.offset, span.size) == _bytes(span.path, span.offset, span.size):
            found.add(span.position)
    return found


def _bytes(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def filled(answer: Row) -> set[tuple[str, int, int]]:
    """Topic, queue and max offset of every queue that has messages."""
    queues = answer["after_start"]["queues"]
    return {(q["topic"], q["queue_id"], q["max"]) for q in queues if max(q["min"], 0) < q["max"]}


def check(case: RandomCase, judge: Judge, work: Path, policy: Policy) -> bool:
    """Recover a case and start the broker on it; False where `recover` refuses."""
    store = case.store
    whole = work / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(store.victim.root, whole, copy_function=sparse_copy)
    truth = places(served(judge, store, whole)[1][0])
    root = case.made("recovered")
    alive = harmless(case, root)
    try:
        plan = kept(root, case, policy)
    except Refused:
        return False
    own = {shape(mishap.path) for _, mishap in case.mishaps if mishap.where in LEFT_TO_BROKERS}
    unknown = {
        (row, moment)
        for row, moment in started(judge, store, root, work).items()
        if row[0] not in own and not set(moment.split(", ")) <= moments_of(row, case, root)
    }
    assert not unknown, f"{case}: a start changes {sorted(unknown)}"
    new = {"topic": "orders", "queue_id": 0, "body": "new", "store_timestamp": MADE_MS + 100_000}
    answer, steps = served(judge, store, root, {"do": "put", "messages": [new]}, {"do": "get"})
    assert answer["after_load"]["max_offset"] == plan.log_end, case
    bare = {queue for queue, units in units_of(root, case.config).items() if not units}
    planned = {
        (row.queue.topic, row.queue.queue_id, row.max_offset)
        for row in plan.queues
        if row.queue not in bare and row.min_offset < row.max_offset
    }
    assert filled(answer) == planned, str(case)
    kept_places = {place: row for place, row in truth.items() if row[0] in alive}
    if policy is Policy.KEEP:
        lost = {place for place, row in kept_places.items() if places(steps[0]).get(place) != row}
        assert not lost, f"{case}: {len(lost)} messages gone, {sorted(lost)[:3]}"
    assert steps[1][0]["status"] == "PUT_OK", case
    assert len(steps[2]) == len(steps[0]) + 1, case
    return True


def moments_of(change: tuple[str, str], case: RandomCase, root: Path) -> set[str]:
    """When a start of a clean store does that, or more, with a file.

    A store that was killed may lack a file that a clean stop leaves; it is made then.
    """
    file, what = change
    start = outcome_of(root, case.config, case.version)
    half = [HALF_AT_END] if start.queues_end < start.log_end else []
    known = documented(case.version, case.store.feature, *half)
    return {moment for as_much in AS_MUCH.get(what, (what,)) for moment in known.get((file, as_much), "").split(", ")}


def recovered(judge: Judge, numbers: Iterable[int], work: Path, policy: Policy) -> tuple[Counter[bool], list[str]]:
    """How many cases were recovered (True) and refused (False), and what is wrong."""
    cases, done = Cases(judge, work), Counter[bool]()
    wrong = []
    for number in numbers:
        case = cases[number]
        if case.store.feature == HALF_LIGHT or not case.store.steady:
            continue  # units elsewhere than the records say; times that look like an earlier life
        try:
            done[check(case, judge, work, policy)] += 1
        except AssertionError as error:
            wrong.append(f"{judge.version} case {number}, {case}: {error}")
    return done, wrong


def test_a_start_of_some_recovered_stores(judge: Judge, tmp_path: Path) -> None:
    done, wrong = recovered(judge, RECOVERED_IN_EVERY_RUN, tmp_path, Policy.KEEP)
    assert done[True] and not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(Policy))
def test_a_start_of_recovered_stores(judge: Judge, tmp_path: Path, policy: Policy) -> None:
    done, wrong = recovered(judge, range(share(RECOVERED_PER_VERSION)), tmp_path, policy)
    assert not wrong, f"seed {SEED}, {len(wrong)} of {done}:\n" + "\n".join(wrong[:10])
    # few cases, as in a slice, may hold more of them by chance
    assert done[False] <= max(6, REFUSED_SHARE * done.total()), f"seed {SEED}: {done}"
