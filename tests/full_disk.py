"""A file system without one free byte: a small tmpfs, filled to the brim.

    answers = run_full("5.3.3-killed-bit", [["recover", "STORE", "--apply", "--yes"]], folder)

Commands run in a mount namespace of their own (unshare(1)), so nobody has to be root. `small_disk` is
for who may mount.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from .stores import unpack

ROOT = Path(__file__).parents[1]
SIZE = "8m"


class Answer(NamedTuple):
    """What a command left: its exit code, what it printed, whether the store is what it was, and what
    lies beside it.
    """

    code: int
    out: str
    err: str
    same: bool
    beside: list[str]


def run_full(name: str, commands: Sequence[Sequence[str]], folder: Path) -> list[Answer]:
    """Unpack a store on a small disk, fill that, and run command lines; `STORE` stands for the store.

    Skips the test where this machine allows no namespace, as many containers do.
    """
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which(alone[0]) or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace here")
    asked = json.dumps([name, [list(command) for command in commands], str(folder)])
    program = [sys.executable, "-m", "tests.full_disk"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [*alone, *program], input=asked, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)  # 135: a bus error
    return [Answer(*row) for row in json.loads(done.stdout)]


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A tmpfs of `SIZE` at `place`, which is made; gone behind the block."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Take all bytes that are left."""
    with (place / "filler").open("wb", buffering=0) as file:
        for piece in (bytes(1 << 16), bytes(1 << 12)):
            with contextlib.suppress(OSError):
                while True:
                    file.write(piece)
    assert os.statvfs(place).f_bavail == 0


def _digest(root: Path) -> dict[str, str]:
    """All files but what a session leaves."""
    files = (path for path in root.rglob("*") if path.is_file() and ".mqstore" not in path.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _main() -> None:
    name, commands, folder = json.load(sys.stdin)
    with small_disk(Path(folder) / "disk") as disk:
        store = unpack(name, disk)
        fill(disk)
        before, answers = _digest(store), []
        for command in commands:
            words = [word.replace("STORE", str(store)) for word in command]
            done = subprocess.run(
                [sys.executable, "-m", "mqstore", *words],
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            same = _digest(store) == before
            beside = sorted(path.name for path in disk.iterdir())
            answers.append(Answer(done.returncode, done.stdout, done.stderr, same, beside))
    print(json.dumps(answers))


if __name__ == "__main__":
    _main()
