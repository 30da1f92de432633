"""Records of compaction logs; epochs and identities of brokers with a controller against log and configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mqstore.formats.hashing import crc31
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import next_commands
from mqstore.store.log.commit_log import Batch
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search.queue_search import open_log
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores

NAME = "5.5.0-clean"
FILE = "epochFileCheckpoint"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.unpack(NAME, tmp_path_factory.mktemp("controller"))


@pytest.fixture(autouse=True)
def without_files(root: Path) -> None:
    for path in [*root.glob(f"{FILE}*"), *root.glob("brokerIdentity*")]:
        path.unlink()


def places(root: Path) -> list[int]:
    """Where the records begin, and behind them the end of the log."""
    log = commit_log_of(Layout.open(root))
    found = [p for item in log.scan() if isinstance(item, Batch) for p in item.position.tolist()]
    return [*found, log.end().position]


def epochs(*starts: int) -> str:
    lines = "".join(f"{number + 3}-{start}\n" for number, start in enumerate(starts))
    return f"{len(starts)}\n{crc31(lines.encode())}\n{lines}"


def said(root: Path, code: str, *options: str) -> list[str]:
    """What verify says of a code: the file, and the text."""
    with StoreReader(root, BrokerConfig().with_set(options)) as store:
        found = verify(store, Scope(groups=frozenset({"compaction"}))).findings
    return [f"{Path(f.path).name}: {f.message}" for f in found if f.code == code]


def test_epochs_of_the_log(root: Path) -> None:
    """From its first record to its end; between files, too; what is expired does not count."""
    at = places(root)
    assert at[0] == 0
    blank = next(
        item.position
        for item in commit_log_of(Layout.open(root)).scan()
        if not isinstance(item, Batch) and item.kind == "blank"
    )
    for starts in ((0,), (0, at[7], at[-1]), (at[3], blank)):
        (root / FILE).write_text(epochs(*starts))
        assert said(root, "I-170") == []


def test_epochs_of_another_log(root: Path) -> None:
    at = places(root)
    (root / FILE).write_text(epochs(0, at[5] + 8, at[-1]))
    assert said(root, "I-170") == [
        f"{FILE}: epoch 4 begins at {at[5] + 8}, but no record does: a slave cannot be cut there"
    ]
    (root / FILE).write_text(epochs(0, at[-1] + 10, at[-1] + 20))
    assert said(root, "I-170") == [
        f"{FILE}: the last epoch begins at {at[-1] + 20}, the log ends at {at[-1]} (and 1 epoch before it)"
    ]


def test_the_file_that_a_broker_takes(root: Path) -> None:
    """The .bak of one that is missing or does not add up; of one with no number neither."""
    at = places(root)
    good, bad = epochs(0, at[5]), epochs(0, at[-1] + 9)
    file, backup = root / FILE, root / f"{FILE}.bak"
    backup.write_text(good)
    older = f"{FILE}: missing; its .bak, which a broker reads instead, may lack the newest epoch"
    assert said(root, "I-170") == [older]
    backup.write_text(bad)
    assert said(root, "I-170") == [
        f"{FILE}.bak: the last epoch begins at {at[-1] + 9}, the log ends at {at[-1]}",
        older,
    ]
    file.write_text(good)
    assert said(root, "I-170") == [], "nobody reads the .bak of a whole file"
    file.write_text(f"9\n0\n3-{at[3]}\n")
    cannot = f"{FILE}: cannot be read: 1 entry, not 9 as its header says"
    assert said(root, "I-170") == [
        f"{cannot}; with its .bak a broker forgets the newest epoch",
        f"{FILE}.bak: the last epoch begins at {at[-1] + 9}, the log ends at {at[-1]}",
    ]
    file.write_text("x\n0\n")
    assert said(root, "I-170") == [
        f"{FILE}: cannot be read: the count is not a number; its .bak may lack the newest epoch"
    ]
    file.unlink()
    backup.write_text("x\n0\n")
    assert said(root, "I-170") == [f"{FILE}: missing, and its .bak cannot be read: the count is not a number"]


def test_a_bak_helps_only_where_it_has_the_newest_epoch(root: Path) -> None:
    """A whole .bak that a broker reads is no damage then; an empty file, or letters, brokers do not pass over."""
    at = places(root)
    rows, crc = f"3-0\n4-{at[5]}\n", epochs(0, at[5]).splitlines()[1]
    right, own = f"2\n{crc}\n{rows}", ["sed", "-i", "-e", "1s/.*/2/", "-e", f"2s/.*/{crc}/", str(root / FILE)]
    copied, forgets = ["cp", str(root / f"{FILE}.bak"), str(root / FILE)], "a broker forgets the newest epoch"
    for text, older, severity, words, said in (
        (f"2\n9\n{rows}", epochs(0), Severity.FATAL, own, forgets),
        (f"9\n{crc}\n{rows}", epochs(0), Severity.FATAL, own, forgets),
        (f"2\n9\n{rows}", epochs(7), Severity.FATAL, None, forgets),
        (f"9\n0\n{rows}", epochs(0), Severity.FATAL, None, forgets),
        (f"2\n9\n3-0\n4-{at[5] + 8}\n", epochs(0), Severity.FATAL, None, forgets),
        (f"2\n9\n3-0\n4-{at[-1] + 8}\n", epochs(0), Severity.WARNING, copied, "its .bak is whole"),
        (f"2\n9\n{rows}", right, Severity.WARNING, own, "its .bak is whole"),
        ("2\n0\n3-0\n", right, Severity.WARNING, copied, "its .bak is whole"),
        (f"2\n0\n3-0\n4-{at[-1] + 8}\n", epochs(0), Severity.FATAL, copied, "the log ends at"),
        (f"2\n0\n3-0\n4-{at[5] + 8}\n", epochs(0), Severity.FATAL, None, "no record does"),
        ("", epochs(0), Severity.FATAL, None, "its .bak may lack the newest epoch"),
        ("x\n0\n", epochs(0), Severity.FATAL, None, "its .bak may lack the newest epoch"),
    ):
        (root / FILE).write_text(text)
        (root / f"{FILE}.bak").write_text(older)
        with StoreReader(root) as store:
            found = verify(store, Scope(groups=frozenset({"compaction"}))).findings
        (told,) = [one for one in found if one.path.endswith(FILE)]
        assert (told.code, told.severity) == ("I-170", severity), text
        assert said in told.message, (text, told.message)
        steps = next_commands([told], root, least=Severity.WARNING)
        assert [list(step.words) for step in steps if step.changes] == ([words] if words else []), text
        if words == own:
            subprocess.run(words, check=True)
            assert (root / FILE).read_text() == right


def test_names_of_the_configuration(root: Path) -> None:
    for name in ("brokerIdentity", "brokerIdentity-temp"):
        (root / name).write_text("c#broker-a#2" + "#code" * name.endswith("temp"))
    assert said(root, "I-171") == []
    assert said(root, "I-171", "brokerClusterName=c", "brokerName=broker-a") == []
    assert said(root, "I-171", "brokerClusterName=d", "brokerName=broker-a") == [
        f"{name}: brokerClusterName is 'd', the cluster name here 'c': the broker does not register"
        for name in ("brokerIdentity", "brokerIdentity-temp")
    ]


@pytest.mark.parametrize(
    ("field", "code", "told"),
    [
        ("body", "I-023", "the body does not match its CRC"),
        ("topic", "I-162", "its topic or queue is not state, queue 0"),
    ],
)
def test_records_of_a_compaction_log_are_whole(field: str, code: str, told: str, tmp_path: Path) -> None:
    """They are what consumers of the topic get. Bodies are left out where structure alone is asked for."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    log = open_log(Layout.open(root), "state", 0)
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    at = int((batch.columns.ragged(field).start - batch.columns.starts + batch.position)[1])
    path = Path(log.queue.files[0].path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    for quick in (False, True):
        with StoreReader(root) as store:
            found = verify(store, Scope(groups=frozenset({"compaction"}), quick=quick)).findings
        wrong = [(f.code, f.path, f.offset, f.message) for f in found]
        seen = [] if quick and field == "body" else [(code, str(path), 258, f"record at 258: {told}")]
        assert wrong == seen
