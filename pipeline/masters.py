"""What the URL of a Spark master says, and whether a server answers there."""

from __future__ import annotations

import re
import socket

from ..store.errors import StoreError

LOOPBACK = "127.0.0.1"
_WAIT_S = 5.0
_CONNECT_PORT = 15002
_STANDALONE_PORT = 7077
_PLACE = re.compile(r"(\[[^\]]+\]|[^:/;,]+)(?::(\d+))?")


class SparkUnavailable(StoreError):
    """Spark cannot run here: a package or Java is missing, or it does not start."""


def is_connect(master: str) -> bool:
    """Whether it is a Spark Connect server: no JVM runs here then."""
    return master.startswith("sc://")


def is_local(master: str) -> bool:
    """Whether all processes run on this machine, started by this one."""
    return master.split("[")[0] in ("local", "local-cluster")


def ships_code(master: str) -> bool:
    """Whether other processes than this one's JVM start the Python workers."""
    return master.split("[")[0] != "local" and not is_connect(master)


def stays_on_loopback(master: str) -> bool:
    """Whether no process of another machine takes part."""
    return is_local(master) or (bool(places_of(master)) and all(_is_loopback(host) for host, _ in places_of(master)))


def places_of(master: str) -> list[tuple[str, int]]:
    """Return host and port of each server that `spark://` or `sc://` names, separated by commas."""
    scheme, found, rest = master.partition("://")
    default = {"spark": _STANDALONE_PORT, "sc": _CONNECT_PORT}.get(scheme)
    if not found or default is None:
        return []
    matches = [_PLACE.match(part) for part in rest.split(",")]
    return [(m[1].strip("[]"), int(m[2] or default)) for m in matches if m is not None]


def check_reachable(master: str) -> None:
    """Raise SparkUnavailable if nobody listens: Spark itself would try for minutes."""
    failed = ""
    for host, port in places_of(master):
        try:
            socket.create_connection((host, port), _WAIT_S).close()
        except OSError as error:
            failed = f"{host}:{port} ({error.strerror or error})"
        else:
            return
    if failed:
        raise SparkUnavailable(f"no Spark answers at {failed}", hint="check --master and whether the cluster runs")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
