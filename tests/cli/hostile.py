"""Stores made to do harm, and what must not come out of a command that meets them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.formats.hashing import java_hash
from mqstore.store.output.escaped import DANGEROUS

from ..store.made_log import MadeLog, patience
from .datadriven import Result, run_here

LOG_FILE_BYTES = 1 << 16
QUEUE_FILE_BYTES = 100 * UNIT_BYTES
SIZES = (
    *("--set", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}"),
    *("--set", f"mappedFileSizeConsumeQueue={QUEUE_FILE_BYTES}"),
)

FALSE_LINE = "mqstore: all is well"
"""What a name with a line break in it must not say on a line of its own."""
#: What a terminal would obey, what a reader would misread, what a shell or a path would follow.
TEXTS = (
    "\x1b[2J\x1b[1;1Hgone",
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x9b31mred",
    "abc\u202egpj.exe",
    "a\u2066b\u2069\u200bc\ufeff",
    f"line\n{FALSE_LINE}",
    "carriage\rreturn",
    "tab\there",
    "back\x08space\x7f",
    "\u2028separated\u2029",
    "$(touch pwned)`touch pwned`;touch pwned",
    "-rf",
    "%s%n{0}[bold]x[/bold]",
    "\udcff\udcfe",
)
FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1")
#: What stderr has of an error that nobody thought of.
CRASHES = ("Traceback", "internal error")
#: What a spreadsheet runs when a cell begins with it.
RUN = ("=", "+", "-", "@", "\t", "\r")
#: Names that lead elsewhere when they are taken for a path.
PATHS = ("../evil", "../../evil", "a/../../../evil", "/evil", "..", ".", "a/b", "nul\0nul", "")

_COLOURS = re.compile(r"\x1b\[\d*m")


SYSTEM_TOPICS = (b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC", b"rmq_sys_wheel_timer")
#: Properties in which a broker keeps a name of somebody.
NAMES = ("REAL_TOPIC", "RETRY_TOPIC", "PGROUP", "ORIGIN_MESSAGE_ID", "TAGS", "KEYS", "UNIQ_KEY")


def hostile_store(root: Path, texts: Iterable[str]) -> Path:
    """A store whose topics, properties, bodies, queue directories and configuration are the texts."""
    log = MadeLog(LOG_FILE_BYTES)
    queues: dict[bytes, list[bytes]] = {}
    texts = list(texts)
    for text in texts:
        raw = text.encode("utf-8", "surrogateescape")
        items = b"\x02".join(
            [name.encode() + b"\x01" + raw for name in NAMES] + [raw + b"\x01" + raw, b"DELAY\x013", b"REAL_QID\x010"]
        )
        for topic in (raw, b"%RETRY%" + raw, b"%DLQ%" + raw, *SYSTEM_TOPICS):
            units = queues.setdefault(topic, [])
            at = log.append(raw, topic=topic[:127], properties=items, queue_offset=len(units))
            size = log.spans[-1][1]
            names = ("physical_offset", "size", "tags_code")
            unit = (at, size, java_hash(text))
            units.append(UNIT.build(dict(zip(names, unit, strict=True))))
    log.write(root / "commitlog")
    for topic, units in queues.items():
        if topic and not {b"/", b"\0"} & {topic[i : i + 1] for i in range(len(topic))} and topic not in (b".", b".."):
            folder = root / "consumequeue" / os.fsdecode(topic) / "0"
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(b"".join(units).ljust(QUEUE_FILE_BYTES, b"\0"))
    _hostile_configuration(root / "config", texts)
    return root


def _hostile_configuration(folder: Path, texts: list[str]) -> None:
    """Tables whose keys and values are the texts."""
    folder.mkdir()
    for name, member, value in (
        ("topics.json", "topicConfigTable", lambda text: {"topicName": text, "attributes": {text: text}}),
        ("subscriptionGroup.json", "subscriptionGroupTable", lambda text: {"groupName": text}),
        ("consumerOffset.json", "offsetTable", lambda text: {text: 1, "0": 2}),
        ("consumerFilter.json", "filterDataByTopic", lambda text: {"topic": text}),
        ("delayOffset.json", "offsetTable", lambda text: text),
    ):
        table = {f"{text}@{text}": value(text) for text in texts}
        data = json.dumps({member: table}, ensure_ascii=False)
        (folder / name).write_bytes(data.encode("utf-8", "surrogateescape"))


def mq(*arguments: object, sizes: bool = True) -> Result:
    """A command in this process, which must come to an end and never show a traceback."""
    with patience():
        result = run_here([*map(str, arguments), *(SIZES if sizes else ())])
    for word in CRASHES:
        assert word not in result.stderr, (arguments, result)
    check_terminal(result.stderr)
    return result


def check_terminal(text: str) -> None:
    """Nothing in it but text and line ends; our own colours are allowed."""
    plain = _COLOURS.sub("", text).replace("\n", "")
    found = re.search(DANGEROUS, plain)
    assert found is None, (found, plain[max(0, found.start() - 60) : found.end() + 20])


def check_output(text: str, format: str) -> None:
    """What a format promises, whatever the store holds."""
    check_terminal(text)
    if format == "text":
        assert not [line for line in text.splitlines() if line.lstrip().startswith(FALSE_LINE)]
    elif format == "json":
        json.loads(text)
    elif format == "ndjson":
        for line in text.splitlines():
            json.loads(line)
    elif format == "csv":
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                assert not cell.startswith(RUN) or _is_number(cell), cell


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").isdigit()


def content(root: Path) -> dict[str, Any]:
    """Everything below a directory: bytes of files, targets of links."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = path.readlink()
        else:
            found[name] = path.read_bytes() if path.is_file() else path.stat().st_mode
    return found


def swapped(root: Path, name: str, make: Callable[[Path], object]) -> None:
    """Put something else in the place of a part of a store."""
    path = root / name
    if path.exists():
        path.rename(root.parent / f"was-{name.replace('/', '-')}")
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)


class Job(NamedTuple):
    """Commands to run while some bytes of a file are others."""

    commands: list[list[str]]
    path: str = ""
    offset: int = 0
    data: bytes = b""


def run_limited(jobs: Iterable[Job], megabytes: int) -> list[list[tuple[int, str]]]:
    """Run the commands in a process with so much memory beyond what its imports take.

    Of each job the exit codes and what stderr got; stdout goes nowhere. None may crash or run
    out of memory, or take a minute.
    """
    jobs = list(jobs)
    asked = [[*job[:3], job.data.hex()] for job in jobs]
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.limited", str(megabytes)],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told: list[list[tuple[int, str]]] = json.loads(done.stdout)
    for job, answers in zip(jobs, told, strict=True):
        for command, (_, stderr) in zip(job.commands, answers, strict=True):
            for word in (*CRASHES, "emory", "no end after"):
                assert word not in stderr, (job[1:], command, stderr)
    return told
