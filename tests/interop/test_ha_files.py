"""epochFileCheckpoint and brokerIdentity: what the real classes write and take, and what we make of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqstore.store.recover.predict import consistent_point, epochs_of
from mqstore.store.settings.read import EPOCH_FILE, backup_note, read_config_file

from ..slices import rng
from .oracle import VERSIONS, compiled, java, missing

pytestmark = pytest.mark.interop

SOURCES = sorted((Path(__file__).parent / "java" / "ha").glob("*.java"))
WITH_CONTROLLER = [version for version in VERSIONS if version >= "5.1"]

#: Texts of an epoch file, of which a class takes some.
EPOCHS = (
    "2\n773307083\n7-7000\n8-8000\n",
    "2\n0\n7-7000\n8-8000\n",
    "2\r\n773307083\r\n7-7000\r\n8-8000",
    "2\n773307084\n7-7000\n8-8000\n",
    "3\n0\n7-7000\n8-8000\n",
    "1\n0\n7-7000\n8-8000\n",
    "2\n0\n7-7000\n8\n",
    "2\n0\n7-7000\n8-x\n",
    "2\n0\n7-7000-\n+8-8000\n",
    "2\n0\n7-7000\n-8-8000\n",
    "2\n0\n7-7000\n8-99999999999999999999\n",
    "2\n0\n99999999999-7000\n8-8000\n",
    "2\n0\n8-8000\n7-7000\n",
    "2\n0\n7-7000\n7-8000\n",
    "2\n0\n",
    "2\n",
    "x\n0\n7-7000\n",
    "1\nx\n7-7000\n",
    "1\n0\n7-7000\n\n",
    "\n",
    "99999999999\n0\n7-7000\n",
)
IDENTITIES = (
    *("c#b#1", "c#b#-7", "c#b#+7", "#b#1", "c##1", "c#b#", "c#b", "c", "", "c#b#1\n", "c#b#x"),
    *("c#b#99999999999999999999", "c#b#1#code", "集群#b#1", "c#b#1##"),
)


def ask(version: str, requests: Sequence[tuple[str, ...]]) -> list[str]:
    """The answers of the real classes."""
    if why := missing(version):
        pytest.skip(why)
    command = [*java(version, compiled(version, SOURCES), heap="1g"), "ha.HaFiles"]
    lines = "".join("\t".join(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(requests), done.stderr
    return answers


def epochs(path: Path) -> str:
    """What we read, as the class tells it."""
    found = read_config_file(path, "epoch-file")
    if found.problem is not None:
        return "-"
    told = {int(r["epoch"]): r["start_offset"] for r in found.records() if r["type"] == "epoch"}
    return " ".join(f"{epoch}-{told[epoch]}" for epoch in sorted(told))


def identity(path: Path, *, temporary: bool = False) -> str:
    """The same of an identity."""
    found = read_config_file(path, "broker-identity")
    if found.problem is not None:
        return "-"
    (record,) = found.records()
    names = ["cluster_name", "broker_name", "broker_id"]
    return " ".join(str(record[n]) for n in [*names, *(["register_check_code"] * temporary)])


@pytest.mark.parametrize("version", WITH_CONTROLLER)
def test_what_the_classes_write(version: str, tmp_path: Path) -> None:
    chance = rng("epochs")
    wanted, requests, epoch, offset = [], list[tuple[str, ...]](), 0, 0
    for number in range(20):
        rows = []
        for _ in range(number):
            epoch += chance.randrange(1, 9)
            offset += chance.randrange(1 << 40)
            rows.append(f"{epoch}-{offset}")
        wanted.append(" ".join(rows))
        requests.append(("write-epochs", str(tmp_path / f"epochs-{number}"), *rows))
    requests.append(("write-identity", str(tmp_path / "brokerIdentity"), "集群", "broker-a", "3"))
    temporary = str(tmp_path / "brokerIdentity-temp")
    requests.append(("write-identity", temporary, "c", "b", "4", "check;code"))
    assert set(ask(version, requests)) == {"ok"}
    for number, told in enumerate(wanted):
        if number:  # without an entry nothing is written
            assert epochs(tmp_path / f"epochs-{number}") == told
    assert identity(tmp_path / "brokerIdentity") == "集群 broker-a 3"
    assert identity(tmp_path / "brokerIdentity-temp", temporary=True) == "c b 4 check;code"


@pytest.mark.parametrize("version", WITH_CONTROLLER)
def test_what_the_classes_take(version: str, tmp_path: Path) -> None:
    """And what they refuse, without a .bak."""
    requests = []
    for number, text in enumerate(EPOCHS):
        (tmp_path / f"epochs-{number}").write_bytes(text.encode())
        requests.append(("read-epochs", str(tmp_path / f"epochs-{number}")))
    for number, text in enumerate(IDENTITIES):
        (tmp_path / f"identity-{number}").write_bytes(text.encode())
        requests.append(("read-identity", str(tmp_path / f"identity-{number}")))
    answers = ask(version, requests)
    for number, text in enumerate(EPOCHS):
        # nothing is there where the class takes neither the file nor a .bak
        assert epochs(tmp_path / f"epochs-{number}") == (answers[number] or "-"), text
    for number, text in enumerate(IDENTITIES):
        assert identity(tmp_path / f"identity-{number}") == answers[len(EPOCHS) + number], text


@pytest.mark.parametrize("version", WITH_CONTROLLER)
def test_when_the_classes_read_bak(version: str, tmp_path: Path) -> None:
    """As we say it."""
    good, requests = EPOCHS[0], list[tuple[str, ...]]()
    for number, text in enumerate(EPOCHS):
        path = tmp_path / f"epochs-{number}"
        path.write_bytes(text.encode())
        path.with_name(path.name + ".bak").write_text(good)
        requests.append(("read-epochs", str(path)))
    alone = tmp_path / "brokerIdentity"
    alone.with_name(alone.name + ".bak").write_text("c#b#1")
    requests.append(("read-identity", str(alone)))
    answers = ask(version, requests)
    assert answers.pop() == "-"
    assert backup_note(None, alone, "broker-identity") == "no broker reads its .bak"
    for number, (text, answer) in enumerate(zip(EPOCHS, answers, strict=True)):
        path = tmp_path / f"epochs-{number}"
        found = read_config_file(path, "epoch-file")
        instead = backup_note(found, path, "epoch-file")
        expected = epochs(path)
        if expected == "-" and "which is whole" in instead:
            expected = "7-7000 8-8000"
        assert expected == answer, text


@pytest.mark.parametrize("version", WITH_CONTROLLER)
def test_where_two_logs_part(version: str, tmp_path: Path) -> None:
    """What a slave cuts off is what the real cache of epochs says, over random pairs."""
    chance, requests, wanted = rng("epochs that part"), [], []
    for number in range(60):
        begins = sorted(chance.sample(range(1, 4000), 6))
        both = [(epoch, begins[epoch]) for epoch in range(chance.randrange(1, 5))]
        names, sides = [], []
        for side in ("own", "master"):
            rows = list(both[chance.randrange(2) :]) or list(both)
            if chance.random() < 0.6:
                rows.append((rows[-1][0] + chance.randrange(1, 3), chance.randrange(4000, 5000)))
            end = chance.choice([rows[-1][1] + chance.randrange(500), 5500, rows[-1][1] - 1])
            path = tmp_path / f"{number}-{side}"
            path.write_text("".join(f"{n}\n" for n in [len(rows), 0, *(f"{e}-{b}" for e, b in rows)]))
            names += [str(path), str(end)]
            sides.append(epochs_of(read_config_file(path, EPOCH_FILE), end))
        requests.append(("consistent", *names))
        wanted.append(str(consistent_point(*sides)))
    assert ask(version, requests) == wanted
    assert len(set(wanted)) > 10
