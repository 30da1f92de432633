"""The real broker's classes as fixtures. They skip only where Java or Maven is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..memory import tmp_path
from .oracle import VERSIONS, Oracle, missing

#: The broker forces its files all the time: stores in memory make these tests some times faster.
__all__ = ["tmp_path"]

pytest.register_assert_rewrite("tests.interop.served")

#: Asked in every run; the other versions by `pytest -m each_version`, of which `.ci/run` has every other test.
FAST_VERSIONS = ("5.3.3",)

HERE = f"{Path(__file__).parent}/"
#: A loaded store stays mapped until a collection: after some thousand files nothing loads any more.
STORES_PER_JVM = 50
#: A start that takes longer never ends.
TIMEOUT_SECONDS = 20


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests of a version that is not asked in every run are slow ones."""
    for item in items:
        if not str(item.path).startswith(HERE) or item.get_closest_marker("slow"):
            continue
        named = getattr(item, "callspec", None)
        texts = [str(value) for value in named.params.values()] if named else []
        versions = [v for v in VERSIONS if any(text.startswith(v) for text in texts)]
        if versions and not set(versions) & set(FAST_VERSIONS):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.each_version)


class Judge:
    """The oracle of one version, with a new JVM every 50 stores or after one has died."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._oracle: Oracle | None = None
        self._asked = 0

    @property
    def oracle(self) -> Oracle:
        """The JVM of the moment."""
        if self._oracle and (self._asked >= STORES_PER_JVM or self._oracle.returncode is not None):
            self.close()
        if self._oracle is None:
            self._oracle = Oracle(self.version, timeout_seconds=TIMEOUT_SECONDS)
            self._asked = 0
        self._asked += 1
        return self._oracle

    def run(self, store: Any, **request: Any) -> dict[str, Any]:
        """As `Oracle.run`."""
        return self.oracle.run(store, **request)

    def close(self) -> None:
        """End the JVM, if there is one."""
        if self._oracle:
            self._oracle.close()
            self._oracle = None


@pytest.fixture(scope="session")
def oracle() -> Iterator[Callable[[str], Judge]]:
    """``oracle("5.3.3")``: the judge of that version. One JVM lives at a time."""
    judges = {version: Judge(version) for version in VERSIONS}

    def of(version: str) -> Judge:
        why_not = missing(version)
        if why_not:
            pytest.skip(f"RocketMQ {version} cannot be asked: {why_not}")
        for other in judges.values():
            if other.version != version:
                other.close()
        return judges[version]

    yield of
    for judge in judges.values():
        judge.close()


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each broker version; pytest groups the tests by it, so JVMs are started rarely."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def judge(oracle: Callable[[str], Judge], version: str) -> Judge:
    """The judge of the version under test."""
    return oracle(version)
