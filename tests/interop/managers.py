"""The real managers of a broker's configuration, asked from Python: what they load of `config/`.

    with Managers("5.3.3") as managers:
        managers.load(root, ["topics.json"])     # {"topics.json": {"loaded": True, "table": "{…}"}}

The jars are those of `brokers`; a small driver in `java/managers`, one request a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from .brokers import class_path
from .oracle import HERE, java_flags

SOURCES = sorted((HERE / "java" / "managers").glob("*.java"))


class Managers:
    """One JVM with the managers of one version, answering one request at a time.

    Its stack is what a broker's main thread has.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self._home = tempfile.TemporaryDirectory(prefix="mqstore-managers-")
        flags = [*java_flags("512m"), "-XX:+UseSerialGC", "-Xss1m", "-Doracle.log=off"]
        flags += [f"-Duser.home={self._home.name}", f"-Djava.io.tmpdir={self._home.name}"]
        self._jvm = subprocess.Popen(
            ["java", *flags, "-cp", class_path(version, *SOURCES), "managers.ManagersMain"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def load(
        self, store: str | os.PathLike[str], files: Sequence[str], *, persist: bool = False
    ) -> dict[str, dict[str, Any]]:
        """By file: `loaded`, or `exception`, and `table`, the JSON that the manager writes then.

        persist: have it written. A file that the version does not know has no answer.
        """
        assert self._jvm.stdin and self._jvm.stdout
        request = {"store": os.fspath(store), "files": list(files), "persist": persist}
        self._jvm.stdin.write(json.dumps(request) + "\n")
        self._jvm.stdin.flush()
        answer: dict[str, Any] = json.loads(self._jvm.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"managers {self.version}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()
        self._jvm.communicate()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
