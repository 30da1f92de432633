"""Damage that the next start of a broker makes worse, I-180 … I-191."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from mqstore.formats.checkpoint import FIELDS, PAGE_BYTES
from mqstore.formats.epoch_file import FILE
from mqstore.formats.message import SMALLEST
from mqstore.store.disk.layout import BARRIER_PREFIX

from . import on
from .edit import overwrite, read, records


def _log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


@on("5.3.3-clean", "4.9.7-clean", "5.5.0-clean")
def i_180(store: Path, random: Random) -> str:
    """A log file, not the last one, has another size."""
    path = random.choice(_log_files(store)[:-1])
    size = random.randrange(1, path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} has {size} bytes"


@on("5.3.3-killed", "4.9.7-killed", "5.5.0-killed")
def i_181(store: Path, random: Random) -> str:
    """A body among the last messages is damaged."""
    place = random.choice([one for one in records(store)[-60:-20] if one.values["body"]])
    offset, _ = place.span("body")
    overwrite(place.path, offset, bytes([read(place.path, offset, 1)[0] ^ 1 << random.randrange(8)]))
    return f"body of the record at {place.position}"


@on("4.3.1-clean")
def i_182(store: Path, random: Random) -> str:
    """Queues are deleted, and the version dispatches nothing after a clean stop."""
    topic = random.choice(["logs", "RMQ_SYS_TRANS_HALF_TOPIC"])
    shutil.rmtree(store / "consumequeue" / topic)
    return f"{topic} deleted"


@on("5.3.3-timer-clean", "5.5.0-timer-clean")
def i_183(store: Path, random: Random) -> str:
    """The wheel leads nowhere."""
    wheel = store / "timerwheel"
    wheel.write_bytes(bytes(wheel.stat().st_size))
    return "the wheel is zeros"


@on("5.3.3-timer-clean", "5.5.0-timer-clean")
def i_184(store: Path, random: Random) -> str:
    """timercheck is lost."""
    for path in (store / "config").glob("timercheck*"):
        path.unlink()
    return "no timercheck"


def i_185(store: Path, random: Random) -> str:
    """A start barrier is left."""
    first = _log_files(store)[0]
    barrier = first.with_name(f"{BARRIER_PREFIX}{random.randrange(1000)}")
    barrier.write_bytes(bytes(first.stat().st_size))
    return barrier.name


@on("5.3.3-killed")
def i_186(store: Path, random: Random) -> str:
    """A log file in the middle is gone."""
    path = _log_files(store)[1]
    path.unlink()
    return f"{path.name} deleted"


def i_187(store: Path, random: Random) -> str:
    """No log file is left beside full queues."""
    for path in _log_files(store):
        path.unlink()
    return "an empty commit log"


@on("5.3.3-clean", "4.9.7-clean", "4.3.1-clean", "5.5.0-clean")
def i_188(store: Path, random: Random) -> str:
    """A table and its .bak are gone, or emptied."""
    names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
    name, emptied = random.choice(names), random.random() < 0.5
    for path in (store / "config" / name, store / "config" / f"{name}.bak"):
        path.write_bytes(b"") if emptied else path.unlink(missing_ok=True)
    return f"{name} {'emptied' if emptied else 'deleted'}"


@on("5.3.3-pop")
def i_190(store: Path, random: Random) -> str:
    """The revive topic is that of a broker with another brokerClusterName, and nothing came back."""
    names = {"rmq_sys_REVIVE_LOG_Test": "rmq_sys_REVIVE_LOG_Last", "%RETRY%pop_": "another_pop"}
    for path in _log_files(store):
        data = path.read_bytes()
        for old, new in names.items():
            data = data.replace(old.encode(), new.encode())
        path.write_bytes(data)
    for path in sorted((store / "consumequeue").iterdir()):
        for old, new in names.items():
            if path.name.startswith(old):
                path.rename(path.with_name(path.name.replace(old, new)))
    return "renamed"


@on("5.3.3-clean", "5.5.0-clean", "5.1.4-clean")
def i_191(store: Path, random: Random) -> str:
    """A broker with a controller has confirmed more than its log has now, a record at least."""
    (store / FILE).write_text("1\n0\n1-0\n")
    path, last = store / "checkpoint", records(store)[-1]
    more = random.randrange(SMALLEST, 10_000)
    fields = FIELDS.parse(path.read_bytes()) | {"confirm_phy_offset": last.position + last.size + more}
    path.write_bytes(FIELDS.build(fields).ljust(PAGE_BYTES, b"\0"))
    return f"confirmed {more} bytes more"
