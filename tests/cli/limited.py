"""A process with little memory that runs commands: `python -m tests.cli.limited MEGABYTES`.

On stdin a JSON list of [commands, path, offset, hex]: while these bytes stand at the offset of the
file, the commands run. On stdout, as JSON, [exit code, stderr] of each.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import sys
from pathlib import Path

import isal.isal_zlib
import lz4.frame
import numpy
import zstandard

from mqstore.cli.app import run

from ..store.made_log import patience

IMPORTED = (isal.isal_zlib, lz4.frame, numpy, zstandard)
"""What takes address space once is not what is measured."""


def limit(megabytes: int) -> None:
    """Allow so much address space more than there is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def answer(command: list[str]) -> tuple[int, str]:
    """Run one command."""
    gc.collect()  # a command has a process of its own: nothing is left of the one before
    stderr = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stderr(stderr), patience():
        code = run(command)
    stderr.flush()
    buffer = stderr.buffer
    assert isinstance(buffer, io.BytesIO)
    return code, buffer.getvalue().decode()


def swap(path: str, offset: int, data: bytes) -> bytes:
    """Put bytes into a file: those that were there."""
    with Path(path).open("r+b") as file:
        file.seek(offset)
        before = file.read(len(data))
        file.seek(offset)
        file.write(data)
    return before


def main() -> None:
    """Answer what stdin asks."""
    told = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    limit(int(sys.argv[1]))
    answers = []
    for commands, path, offset, data in json.load(sys.stdin):
        before = swap(path, offset, bytes.fromhex(data)) if path else b""
        answers.append([answer(command) for command in commands])
        if path:
            swap(path, offset, before)
    os.write(told, json.dumps(answers).encode())


if __name__ == "__main__":
    main()
