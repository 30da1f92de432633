"""Clusters on the loopback, of pip's pyspark: a standalone master with a worker, a Connect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mqstore.pipeline.spark import find_java, java_home

HOST = "127.0.0.1"
_START_S = 300


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def bare_python(folder: Path) -> Path:
    """A Python with all packages of this one but mqstore: where a cluster's workers have it from."""
    script = folder / "bare-python"
    packages = sysconfig.get_paths()["purelib"]
    run = f'PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"'
    script.write_text(f"#!/bin/sh\n{run}\n")
    script.chmod(0o755)
    return script


def environment(folder: Path) -> dict[str, str]:
    """Of the servers, and of the programs that use them."""
    (folder / "java").mkdir(parents=True, exist_ok=True)
    home = folder / "java" / "home"
    if not home.exists():
        java_home(find_java(), home)
    return {
        **os.environ,
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": str(bare_python(folder)),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }


@contextmanager
def server(arguments: list[str], port: int, folder: Path) -> Iterator[None]:
    """A Spark process that listens on a port; it is gone behind the block."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / arguments[0]
    log = folder / f"{port}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [program, *arguments[1:]],
            env=environment(folder),
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + _START_S
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.3)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and a worker with two cores: the master's URL."""
    port, of_worker = free_port(), free_port()
    place = ["--host", HOST, "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    with ExitStack() as both:
        master = [f"{deploy}.master.Master", *place, "--port", str(port)]
        both.enter_context(server(["spark-class", *master], port, folder))
        worker = [f"{deploy}.worker.Worker", *place, "--port", str(of_worker)]
        worker += ["--cores", "2", "--memory", "1g", f"spark://{HOST}:{port}"]
        both.enter_context(server(["spark-class", *worker], of_worker, folder))
        yield f"spark://{HOST}:{port}"


@contextmanager
def connect(folder: Path) -> Iterator[str]:
    """A Connect server on two cores: its URL."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
    }
    conf = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ["spark-submit", "--master", "local[2]", *conf, "--class", main, "spark-internal"]
    with server(arguments, port, folder):
        yield f"sc://{HOST}:{port}"
