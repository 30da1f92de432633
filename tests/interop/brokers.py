"""Whole real brokers with clients of their own, on loopback ports: what is delivered, and when.

    with Broker("5.3.3", root, config) as broker:
        broker.consume({"orders": "*"})
        broker.received(3)

One JVM holds name server, broker and clients; it is killed at the end. Like `oracle`: jars from
Maven once per version, a small driver in `java/broker`, one request a line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..slices import pick
from .oracle import HERE, cache_directory, java_flags, move_into_place, source_hash

VERSIONS = ("5.3.3", "5.5.0", "5.5.1")
#: Where the parts of a version that a broker has not of its own are taken from: not all were published.
OTHERS = {"5.5.1": "5.5.0"}
#: Slow tests ask more, as far as a slice takes them.
ALL_VERSIONS = (*VERSIONS, *pick(("4.9.7", "5.1.4", "5.4.0"), "brokers of other versions"))
#: 4.x has neither timer nor POP.
VERSIONS_OF_5 = tuple(version for version in ALL_VERSIONS if not version.startswith("4."))
#: A broker that has not started, or a client that has not answered by then, never will.
TIMEOUT_SECONDS = 180
#: What has not been delivered by then on a slow machine, was forgotten.
PATIENCE_SECONDS = 90
SOURCES = sorted((HERE / "java" / "broker").glob("*.java"))
#: Extends a class that 4.x has not.
SINCE_5 = "LoopbackReplication.java"

#: Of cluster and broker.
NAME = "interop"
#: What keeps a start short. Nothing here changes what is delivered.
BROKER = {"brokerClusterName": NAME, "brokerName": NAME, "enablePropertyFilter": "true"}
STORE = {"duplicationEnable": "false", "timerWheelEnable": "true", "warmMapedFileEnable": "false"}


def missing(version: str) -> str:
    """Why this version cannot be run here; empty where it can."""
    needed = ["java", "javac"] if _jars(version).is_dir() else ["java", "javac", "mvn"]
    return ", ".join(f"no {tool}" for tool in needed if not shutil.which(tool))


def _jars(version: str) -> Path:
    return cache_directory() / version / "broker-lib"


def _fetch(version: str) -> Path:
    """The jars of a version, fetched with Maven where they are not there yet."""
    jars = _jars(version)
    if not jars.is_dir():
        jars.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="broker-lib.", dir=jars.parent))
        values = [f"-Drocketmq.version={version}", f"-DoutputDirectory={fresh}"]
        if version in OTHERS:
            values.append(f"-Drocketmq.others={OTHERS[version]}")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", *values]
        pom = str(HERE / "brokers-pom.xml")
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *goal], check=True, stdout=sys.stderr)
        move_into_place(fresh, jars)
    return jars


def class_path(version: str, *sources: Path) -> str:
    """The jars of a version, and the classes of `sources` compiled against them."""
    jars = _fetch(version)
    classes = jars.parent / f"broker-{source_hash(sources)}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(prefix="broker.", dir=jars.parent))
        command = ["javac", "-nowarn", "-Xlint:-options", "-d", str(fresh), "-cp", f"{jars}/*"]
        subprocess.run([*command, *map(str, sources)], check=True)
        move_into_place(fresh, classes)
    return f"{classes}:{jars}/*"


def _driver(version: str) -> list[Path]:
    """The sources that this version compiles."""
    return [path for path in SOURCES if path.name != SINCE_5 or not version.startswith("4.")]


class Broker:
    """A broker on a store: it changes the store. Killed at the end, unless `stop` was called.

    config: of MessageStoreConfig. broker: of BrokerConfig.
    """

    def __init__(
        self,
        version: str,
        store: str | os.PathLike[str],
        config: Mapping[str, Any] | None = None,
        broker: Mapping[str, Any] | None = None,
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="mqstore-broker-")
        self._log = os.memfd_create("broker-log")
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        small += ["-Drocketmq.client.rebalance.waitInterval=200"]
        small += [f"-Duser.home={self._home.name}", "-Drocketmq.client.logUseSlf4j=true"]
        self._jvm = subprocess.Popen(
            [
                *("java", *java_flags("1g"), *small, "-Doracle.log=warn"),
                *("-cp", class_path(version, *_driver(version)), "broker.BrokerMain"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            cwd=self._home.name,
        )
        try:
            self.started_ms: int = self._ask(
                "start", store=os.fspath(store), config=_texts(STORE, config or {}), broker=_texts(BROKER, broker or {})
            )["started_ms"]
        except BaseException:
            self.kill()
            raise

    def consume(self, topics: Mapping[str, str], *, sql: bool = False, **more: Any) -> None:
        """Begin to consume topics from their first offset, by tags or by SQL92.

        more: group: of its own; refuse: bodies that it gives back, at most `retries` times; pop: as
        config/messageRequestMode.json says; hold: it never answers.
        """
        self._ask("consume", topics=topics, **({"sql": True} if sql else {}), **more)

    def leave(self, group: str) -> None:
        """End the consumer of a group: its offsets are committed."""
        self._ask("leave", group=group)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, as an administrator does."""
        self._ask("commit", group=group, topic=topic, queue_id=queue_id, offset=offset)

    def serve(self, **what: Any) -> None:
        """Change a topic (`topic`, `perm`, `queues`) or a group (`group`, `enabled`)."""
        self._ask("serve", **what)

    def received(self, count: int, *, seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
        """What consumers got so far, in the order of arrival: as soon as it is `count`."""
        return self._collected("received", count, seconds)

    def produce(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Send messages with the real client: the status of each."""
        results: list[str] = self._ask("produce", messages=messages)["results"]
        return results

    def decide(self, group: str, topic: str, decisions: Mapping[str, str]) -> None:
        """Answer the broker's questions about half messages, by body."""
        self._ask("decide", group=group, topic=topic, decisions=decisions)

    def checked(self, count: int, *, seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
        """The half messages that the broker has asked about."""
        return self._collected("checked", count, seconds)

    def _collected(self, what: str, count: int, seconds: float) -> list[dict[str, Any]]:
        """What has come so far: `count` messages at least, or all until the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            messages: list[dict[str, Any]] = self._ask(what)["messages"]
            if len(messages) >= count or time.monotonic() > deadline:
                return messages
            time.sleep(0.1)

    def stop(self) -> None:
        """Shut the broker down cleanly."""
        self._ask("stop")
        self.kill()

    def kill(self) -> None:
        """End the JVM at once."""
        if self._jvm.stdin and not self._jvm.stdin.closed:
            self._jvm.kill()
            self._jvm.communicate()
            os.close(self._log)
            self._home.cleanup()

    def _ask(self, what: str, **request: Any) -> dict[str, Any]:
        assert self._jvm.stdin and self._jvm.stdout
        watchdog = threading.Timer(TIMEOUT_SECONDS, self._jvm.kill)
        watchdog.start()
        try:
            self._jvm.stdin.write(json.dumps({"do": what, **request}) + "\n")
            self._jvm.stdin.flush()
            line = self._jvm.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the JVM died"}
        if "error" in answer:
            raise RuntimeError(f"broker, {what}: {answer['error']}\n{self._said()}")
        return answer

    def _said(self) -> str:
        """The end of RocketMQ's own log."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 1 << 14, max(0, size - (1 << 14))).decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _texts(*layers: Mapping[str, Any]) -> dict[str, str]:
    """Settings as Java's properties have them."""
    found = {key: value for layer in layers for key, value in layer.items()}
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in found.items()}
