"""RocketMQ's real filter classes, asked from Python: the parser of SQL92 and the bloom filter.

    with Filters("5.3.3") as filters:
        filters.ask("price > 50", [{"price": "51"}])   # "T"

Like `oracle`: jars from Maven once per version, a small driver in `java/filter`, one request a line.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .oracle import HERE, cache_directory

VERSIONS = ("4.9.7", "5.3.3")


def missing(version: str) -> str:
    """Why this version cannot be asked here; empty where it can."""
    needed = ["java", "javac"] if _jars(version) else ["java", "javac", "mvn"]
    return ", ".join(f"no {tool}" for tool in needed if not shutil.which(tool))


def _home(version: str) -> Path:
    return cache_directory() / version


def _jars(version: str) -> list[Path]:
    return list(_home(version).glob("filter-lib/rocketmq-filter-*.jar"))


def _prepared(target: Path, command: Sequence[str], fresh: Path) -> Path:
    """The target folder, made by a command that fills `fresh`; of several makers one wins."""
    subprocess.run(command, check=True, stdout=sys.stderr)
    try:
        fresh.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(fresh)
    return target


def _class_path(version: str) -> str:
    """Jars and driver of a version, fetched and compiled where they are not there yet."""
    home = _home(version)
    home.mkdir(parents=True, exist_ok=True)
    jars = home / "filter-lib"
    if not _jars(version):
        fresh = Path(tempfile.mkdtemp(prefix="filter-lib.", dir=home))
        values = [f"-Drocketmq.version={version}", f"-DoutputDirectory={fresh}"]
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", *values]
        pom = str(HERE / "filter-pom.xml")
        _prepared(jars, ["mvn", "-q", "-B", "-f", pom, *goal], fresh)
    source = HERE / "java" / "filter" / "FilterMain.java"
    classes = home / f"filter-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(prefix="filter.", dir=home))
        compiler = ["javac", "-nowarn", "-Xlint:-options", "-d", str(fresh), "-cp", f"{jars}/*"]
        _prepared(classes, [*compiler, str(source)], fresh)
    return f"{classes}:{jars}/*"


class Filters:
    """One JVM with the filter classes of one version, answering one request at a time."""

    def __init__(self, version: str) -> None:
        self.version = version
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
        self._jvm = subprocess.Popen(
            ["java", *small, "-cp", _class_path(version), "filter.FilterMain"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, expression: str, messages: Sequence[Mapping[str, str]]) -> str | None:
        """One letter a message: T, F, N (null), E (thrown). None where the parser refuses."""
        answer = self._exchange({"expression": expression, "messages": messages})
        return None if answer.get("refused") else str(answer["results"])

    def bits(self, names: Sequence[str], error_rate: int, consumers: int) -> tuple[int, list[list[int]]]:
        """The number of bits of a bloom filter, and the bits that each name sets."""
        request = {"names": names, "errorRate": error_rate, "consumers": consumers}
        answer = self._exchange(request)
        return answer["bits"], answer["positions"]

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._jvm.stdin and self._jvm.stdout
        self._jvm.stdin.write(json.dumps(request) + "\n")
        self._jvm.stdin.flush()
        answer: dict[str, Any] = json.loads(self._jvm.stdout.readline())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._jvm.stdin and self._jvm.stdout
        self._jvm.stdin.close()
        self._jvm.stdout.close()
        self._jvm.wait()
