"""The real Apache RocketMQ store classes, driven from Python. See README.md here.

    with Oracle("5.3.3") as oracle:
        answer = oracle.run(root, steps=[{"do": "get"}], exit="clean")

One request per line goes to a JVM, one answer per line comes back. The jars come from Maven once
per version, the driver in ``java/`` is compiled against them once per version and source.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VERSIONS = ("4.3.1", "4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
HERE = Path(__file__).resolve().parent

#: Sizes small enough that a handful of messages fills several files. Every answer depends on them:
#: a store must be opened with the sizes that it was written with.
TINY = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 400,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
    "mappedFileSizeTimerLog": 600,
}

_OPENS = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang", "java.util")
_EXPORTS = ("sun.nio.ch", "jdk.internal.ref")
#: What must be installed, and what for.
_NEEDED = {"java": "to run the broker's classes", "javac": "to compile the driver"}
_NEEDED_ONCE = {"mvn": "to fetch the broker's jars"}


def cache_directory() -> Path:
    """Where jars and classes lie: `MQSTORE_ORACLE_CACHE`, else the user's cache folder."""
    own = os.environ.get("MQSTORE_ORACLE_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(own) if own else user / "mqstore-oracle"


def missing(version: str) -> str:
    """Why this version cannot be asked here; empty where it can."""
    needed = _NEEDED if _jars(version) else _NEEDED | _NEEDED_ONCE
    return "; ".join(f"no {tool} {why}" for tool, why in needed.items() if not shutil.which(tool))


def _home(version: str) -> Path:
    return cache_directory() / version


def _jars(version: str) -> list[Path]:
    return list(_home(version).glob("lib/rocketmq-store-*.jar"))


def class_path(version: str) -> str:
    """The jars of a version, fetched with Maven where they are not there yet."""
    home = _home(version)
    if not _jars(version):
        home.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="lib.", dir=home))
        profile = ["-Pfour"] if version.startswith("4.") else []
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", *profile]
        values = [f"-Drocketmq.version={version}", f"-DoutputDirectory={fresh}"]
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *goal, *values]
        subprocess.run(command, check=True, stdout=sys.stderr)
        move_into_place(fresh, home / "lib")
    return f"{home}/lib/*"


def source_hash(sources: Sequence[Path]) -> str:
    """What names the classes of these sources."""
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(content).hexdigest()[:16]


def compiled(version: str, sources: Sequence[Path]) -> Path:
    """The folder of classes of `sources` for a version; compiled where it is not there yet."""
    classes = _home(version) / f"classes-{source_hash(sources)}"
    if not classes.exists():
        jars = class_path(version)
        fresh = Path(tempfile.mkdtemp(prefix="classes.", dir=_home(version)))
        command = ["javac", "-nowarn", "-Xlint:-options", "-d", fresh, "-cp", jars, *sources]
        subprocess.run([str(word) for word in command], check=True)
        move_into_place(fresh, classes)
    return classes


def move_into_place(fresh: Path, target: Path) -> None:
    """Several processes may prepare the same version: the first one wins."""
    try:
        fresh.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(fresh)


def java_flags(heap: str, *, quick: bool = True) -> list[str]:
    """What every JVM here needs to be told.

    `heap`: a damaged size field makes old brokers allocate that much before they fail. `quick`: it
    lives for seconds, and is not to be measured.
    """
    logback = HERE / "logback.xml"
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
    exports = [f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in _EXPORTS]
    for_seconds = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if quick else []
    return [
        *(*opens, *exports, f"-Xmx{heap}", *for_seconds),
        f"-Dlogback.configurationFile={logback}",
        f"-Drmq.logback.configurationFile={logback}",
    ]


def java(version: str, classes: Path, *flags: str, heap: str = "4g", quick: bool = True) -> list[str]:
    """The start of a command line that runs something on the jars of a version."""
    jars = class_path(version)
    return ["java", *java_flags(heap, quick=quick), *flags, "-cp", f"{classes}:{jars}"]


class OracleDied(RuntimeError):
    """The JVM ended before it answered, or was killed because it did not answer in time."""


class Oracle:
    """One JVM with one version of RocketMQ, answering one request at a time.

    `log` is the level of RocketMQ's own log, whose lines stand in the answer's ``log``.
    `timeout_seconds` bounds one answer: a loop in an index chain makes a broker spin for ever.
    """

    def __init__(self, version: str, *, log: str = "warn", heap: str = "4g", timeout_seconds: float = 60) -> None:
        self.version = version
        self.timeout_seconds = timeout_seconds
        classes = compiled(version, sorted((HERE / "java" / "oracle").glob("*.java")))
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        small += ["-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30", "-Djava.awt.headless=true"]
        command = java(version, classes, *small, "-XX:ErrorFile=/dev/null", f"-Doracle.log={log}", heap=heap)
        # The log goes to a file in memory: nobody has to read it for the JVM to go on.
        self._log = os.memfd_create("oracle-log")
        self._jvm = subprocess.Popen(
            [*command, "oracle.Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises OracleDied where the JVM does not answer, RuntimeError where it says why it could not.
        """
        log_start = self._log_size()
        watchdog = threading.Timer(self.timeout_seconds, self._jvm.kill)
        watchdog.start()
        try:
            line = self._exchange(json.dumps(request))
        finally:
            watchdog.cancel()
        log = self._log_since(log_start)
        if not line:
            said = "\n".join(log[-20:])
            raise OracleDied(f"oracle {self.version}: exit status {self._jvm.wait()}\n{said}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"oracle {self.version}: {answer['error']}")
        return answer | {"log": log}

    def _exchange(self, request: str) -> str:
        """The answer's line; empty when the JVM is gone."""
        assert self._jvm.stdin and self._jvm.stdout
        try:
            self._jvm.stdin.write(request + "\n")
            self._jvm.stdin.flush()
        except BrokenPipeError:
            return ""
        # What the JVM itself says on stdout stands before the answer.
        return next((line for line in self._jvm.stdout if line.startswith("{")), "")

    def _log_size(self) -> int:
        return os.fstat(self._log).st_size

    def _log_since(self, start: int) -> list[str]:
        said = os.pread(self._log, self._log_size() - start, start)
        return said.decode(errors="replace").splitlines()

    def run(
        self, store: str | os.PathLike[str], *, config: dict[str, Any] | None = None, **request: Any
    ) -> dict[str, Any]:
        """Open, load, start, do the steps, exit. `config` is laid over TINY.

        The store is changed as a broker would change it: give it a copy.
        """
        settings = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()
        }
        base = {"store": os.fspath(store), "defaults": TINY, "config": settings}
        return self.ask(base | request)

    def decode(self, store: str | os.PathLike[str]) -> dict[str, Any]:
        """MessageDecoder over the commit log files: nothing is loaded, nothing written."""
        return self.ask({"op": "decode", "store": os.fspath(store)})

    @property
    def returncode(self) -> int | None:
        """Exit status of the JVM, None while it lives, -9 when the watchdog killed it."""
        return self._jvm.poll()

    def kill(self) -> None:
        """End the JVM as `kill -9` does, whatever it is at: `ask` raises OracleDied."""
        self._jvm.kill()

    def close(self) -> None:
        """End the JVM."""
        assert self._jvm.stdin and self._jvm.stdout
        try:
            self._jvm.stdin.close()
        except BrokenPipeError:
            self._jvm.kill()
        self._jvm.stdout.close()
        self._jvm.wait()
        os.close(self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
