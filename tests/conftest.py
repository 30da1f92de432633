"""Options, fixtures and settings that every test shares."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from . import memory, slices
from .failing_disk import mend_here
from .stores import unpack

# A fast run takes the same few examples every time. Slow ones follow MQSTORE_SEED: the scripts hand it
# to hypothesis too (`--hypothesis-profile=seeded --hypothesis-seed=…`), for all tests that have examples.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, database=None, max_examples=20)
hypothesis.settings.register_profile("seeded", deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

# Commands that tests start are many: each would compile the project again.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# A shell script that runs the tests in the background has SIGINT ignored, and every command that a
# test starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`: store what a command printed instead of comparing with it; and `--one-in`."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expectations in tests/testdata")
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="a slice has one of N slow tests, by seed")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Examples of a fast run do not depend on what else was imported: hypothesis mixes in the constants of all code of
    the project that it finds, and parses all of it for them.
    """
    if hypothesis.settings.get_current_profile_name() == "fixed":
        setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010


def pytest_report_header() -> str:
    """Say the seed, so that a red run can be made again."""
    return f"mqstore: MQSTORE_SEED={slices.SEED} MQSTORE_SLICE={slices.SLICE}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: one more than cores, since many tests wait for processes, clocks and disks."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(autouse=True)
def own_time_zone() -> None:
    """A test begins in the zone of its environment: one before it had another, and is not over for C."""
    time.tzset()


STORES_LEFT_MS = 1_795_348_800_000
"""2026-11-22T12:00Z: all brokers of the stores here had stopped by then, hours or days before."""


@pytest.fixture(autouse=True)
def soon_after_the_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test says no time, a command of this process is run before the wheel of any timer has gone round. A real
    broker goes by the clock.
    """
    if request.node.get_closest_marker("interop") is None:
        clock = SimpleNamespace(time_ns=lambda: STORES_LEFT_MS * 1_000_000)
        monkeypatch.setattr("mqstore.store.search.store.time", clock)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of its own for a test: of a fast one in memory, where the machine has room there."""
    if request.node.get_closest_marker("slow") is None and memory.has_room():
        with memory.folder() as place:
            yield place
    else:
        yield request.getfixturevalue("tmp_path")


OTHER_BROKER = re.compile(r"tests/interop/.*\[(?:.*-)?(?!5\.3\.3)(\d\.\d+\.\d+)")
"""A test of the real broker, of a version that is not asked in every run."""


@pytest.fixture(autouse=True)
def whole_disk() -> Iterator[None]:
    """Behind a test this process can read all again."""
    yield
    mend_here()


SPARK_SESSION = re.compile(r"\bspark: SparkSession\b")
"""How a test asks for the session that all share."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but what asks for the Spark session is one file: one worker starts it.

    So is what asks a broker of another version: to change versions is to start another JVM. Files go as they were
    collected (`_longest_first`).
    """
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False

    class OneSession(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if broker := OTHER_BROKER.match(nodeid):
                return broker[1]
            file = str(super()._split_scope(nodeid))
            return "the Spark session" if asks_for_session(config.rootpath / file) else file

    return OneSession(config, log) if config.getoption("dist") == "loadfile" else None


@cache
def asks_for_session(file: Path) -> bool:
    """Whether a test in a file takes the Spark session."""
    return SPARK_SESSION.search(file.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """What a run leaves out has no items: those of the slow tests are some ten thousand."""
    marks = {mark.name for mark in (*getattr(obj, "pytestmark", ()), *collector.iter_markers())}
    return None if marks.isdisjoint(_left_out(collector.config)) else []


def _left_out(config: pytest.Config) -> set[str]:
    """Marks of the tests that a run leaves out: of the longer ones and of those that start Spark where it asks for
    all, neither by path nor mark.
    """
    mark_expression = config.getoption("markexpr")
    if "not slow" not in mark_expression or any("::" in word for word in config.args):
        return set()
    chosen = mark_expression != "not slow" or config.getoption("keyword")
    asks_for_all = not chosen and [*map(os.path.normpath, config.args)] == config.getini("testpaths")
    return {"slow", "long", "interop", "spark"} if asks_for_all else {"slow"}


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


def _of_each_test(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Items by the test whose parameters they are."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests


def _leave_few(items: list[pytest.Item]) -> None:
    """Of a test marked `few(n)` n of its parameters stay fast, from the first to the last of them."""
    fast = (item for item in items if item.get_closest_marker("few") and not item.get_closest_marker("slow"))
    for of_test in _of_each_test(fast).values():
        mark = of_test[0].get_closest_marker("few")
        assert mark is not None
        stay = slices.spread(len(of_test), mark.args[0])
        for number, item in enumerate(of_test):
            if number not in stay:
                item.add_marker(pytest.mark.slow)


def _grows(item: pytest.Item) -> bool:
    """Whether a test is slow, or one for which hypothesis has more examples than a fast run takes."""
    examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return examples or item.get_closest_marker("slow") is not None


def _sliced(items: list[pytest.Item], one_in: int) -> list[pytest.Item]:
    """A slice of the slow work, by the seed: of one in so many tests one of the parameters, at least, and every other
    question to brokers of the versions that are not asked in every run.
    """
    versions = [item for item in items if item.get_closest_marker("each_version")]
    grow = _of_each_test(item for item in items if _grows(item) and not item.get_closest_marker("each_version"))
    stay = {
        item
        for name in slices.pick(sorted(grow), "slow tests", len(grow) // one_in)
        for item in slices.pick(grow[name], name)
    }
    for name, of_test in _of_each_test(versions).items():
        stay |= set(slices.pick(of_test, name, len(of_test) // 2 + 1))
    out = {*versions, *(item for of_test in grow.values() for item in of_test)} - stay
    return [item for item in items if item not in out]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that start Spark are marked, whatever else asks for the session. Then those are left out that the run does
    not take: without a word of them in its arguments, or of a slice.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if not any("::" in word for word in config.args):  # who names a test wants it
        _leave_few(items)
    without = _left_out(config)
    stay = [item for item in items if without.isdisjoint(mark.name for mark in item.iter_markers())]
    if slices.SLICE != 1 and "not slow" not in config.getoption("markexpr"):
        stay = _sliced(stay, config.getoption("--one-in"))
    config.hook.pytest_deselected(items=[*set(items) - set(stay)])
    items[:] = _longest_first(stay) if hasattr(config, "workerinput") else stay


def _longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests for several processes: at the end none is to wait for one that is at work on a long file. First what waits
    for brokers and Spark, then what has the most tests.
    """
    of_file = Counter(item.path for item in items)
    waiting = {item for item in items if {"interop", "spark"} & {mark.name for mark in item.iter_markers()}}
    return sorted(items, key=lambda item: (item not in waiting, -of_file[item.path]))


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """True where transcripts are to be rewritten."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a real store by name into a fresh directory: ``root = store("5.3.3-killed")``."""
    return lambda name: unpack(name, tmp_path)
