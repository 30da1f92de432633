"""Logs in object storage (S3 on the loopback)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.sources import table_sources
from mqstore.pipeline.sources.tables import TableSource, reader_of
from mqstore.pipeline.stats import count, joined, tasks_of
from mqstore.pipeline.tasks import answer_of, told
from mqstore.store.arrow.local_query import LocalQuery
from mqstore.store.arrow.log_rows import parts_of
from mqstore.store.arrow.stores import ReadOptions, log_sizes
from mqstore.store.arrow.views import AnswerGaps, readable
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import Missing
from mqstore.store.verify.verdict import Verdict

from ..store.arrow.rows import ask_of, damage, rows
from ..stores import unpack
from .test_verify import in_tasks

pytestmark = pytest.mark.long

FIELDS = "position,topic,queue_id,queue_offset,body"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """`URI%s` of a directory in an S3 server of this process."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    before = {name: os.environ.get(name) for name in keys}
    os.environ.update(keys)
    s3 = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
    s3.create_dir("bucket")
    yield f"s3://bucket/%s?scheme=http&region=us-east-1&endpoint_override={host}:{port}"
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    server.stop()


@pytest.fixture(scope="module")
def there(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with all parts but the wheel, which is large, and the URI of its copy."""
    root = unpack("5.5.0-timer-killed", tmp_path_factory.mktemp("store"))
    (root / "timerwheel").unlink()
    return root, put_there(root, bucket)


def put_there(root: Path, bucket: str) -> str:
    """The URI of a copy of a store."""
    from pyarrow import fs

    uri = bucket % root.name
    place, path = fs.FileSystem.from_uri(uri)
    fs.copy_files(str(root), path, destination_filesystem=place)
    return uri


@pytest.mark.slow
def test_a_log_in_object_storage(bucket: str, tmp_path: Path) -> None:
    """The same rows as from a directory, damage among them, whole and in splits."""
    root = unpack("4.9.7-killed-page", tmp_path)
    uri = put_there(root, bucket)
    wanted = rows(ask_of(root, fields=FIELDS))
    assert rows(ReadOptions.of({"path": uri, "fields": FIELDS})) == wanted
    small = ReadOptions.of({"path": uri, "fields": FIELDS, "split_bytes": "100000"})
    assert len(parts_of(small)) > 1
    assert rows(small) == wanted
    assert [(d.position, d.size) for d in damage(small)] == [(d.position, d.size) for d in damage(ask_of(root))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["queue", "index", "timer", "offsets", "findings"])
def test_all_else_of_a_store_in_object_storage(name: str, there: tuple[Path, str]) -> None:
    """The same rows as from a directory, under the name of the place."""
    root, uri = there
    source = next(one for one in table_sources() if one.name() == f"rocketmq-{name}")
    wanted = [{key: renamed(value, root, uri) for key, value in row.items()} for row in table(source, str(root))]
    found = table(source, uri)
    assert found and {row["store"] for row in found} == {uri}
    assert sorted(found, key=str) == sorted(wanted, key=str)


def renamed(value: object, root: Path, uri: str) -> object:
    return value.replace(str(root), uri) if isinstance(value, str) else value


def table(source: type[TableSource], path: str) -> list[dict[str, Any]]:
    """The rows that a source gives, without Spark."""
    ask = ReadOptions.of({"path": path})
    names = tuple(source.table.all_columns())
    reader = reader_of(source.table, ask, names)
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


def test_verify_in_object_storage(bucket: str, tmp_path: Path) -> None:
    """Findings, of which none names the copy that was made; a store that is not there is told."""
    root = unpack("4.9.7-killed-page", tmp_path)
    places = [put_there(root, bucket), bucket % "none"]
    (uri, found), (_, error) = in_tasks(places)
    (_, wanted) = in_tasks([str(root)])[0]
    assert isinstance(found, Verdict) and isinstance(wanted, Verdict)
    assert uri == places[0]
    renamed_ones = [replace(one, path=one.path.replace(str(root), uri)) for one in wanted.findings]
    assert found.findings == renamed_ones
    assert isinstance(error, Missing)


def test_what_fills_logs_in_object_storage(there: tuple[Path, str]) -> None:
    """`stats` counts the same, `diff` and `verify` know how much there is."""
    root, uri = there
    counted = []
    for place in (str(root), uri):
        tasks = tasks_of(ReadOptions((place,)), ["topic"])
        found, unread = joined(tasks, [told(answer_of(count, task)) for task in tasks], ["topic"])
        assert not unread
        counted.append(found.stats.rows())
        sizes = [log_sizes([one], BrokerConfig())[0][one] for one in (place, str(root))]
        assert sizes[0] == sizes[1]
    assert counted[0] == counted[1]


def test_a_query_over_object_storage(there: tuple[Path, str], bucket: str) -> None:
    """In this process: a log by ranges, the rest copied; a store that is not there is none."""
    root, uri = there
    for query in (
        "SELECT topic, count(*) AS n, max(tags) AS tag FROM messages GROUP BY topic ORDER BY topic",
        "SELECT topic, queue_id, count(*) AS n FROM queues GROUP BY ALL ORDER BY ALL",
        "SELECT position, size FROM damage",
    ):
        answers = []
        for place in (str(root), uri):
            with LocalQuery(query) as asked:
                ask, unread = readable(ReadOptions((place, bucket % "none")), asked.views)
                assert (ask.stores, [*unread]) == ((place,), [bucket % "none"])
                rows = asked.answer(ask, AnswerGaps())
                answers.append([row for part in rows for row in part.to_pylist()])
        assert answers[0] == answers[1], query


def test_object_storage_that_is_not_there(bucket: str) -> None:
    """An error; among findings it is one of them."""
    uri = bucket % "none"
    with pytest.raises(Missing, match="no commitlog here"):
        rows(ReadOptions.of({"path": uri}))
    for source in table_sources():
        if source.table.reports_unread:
            (row,) = table(source, uri)
            assert row["store"] == uri and row["problem"].startswith("no such directory"), source
        else:
            with pytest.raises(Missing, match="no such directory"):
                table(source, uri)


@pytest.mark.slow
def test_export_and_diff_of_object_storage(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a directory; a store that is not there is no empty one."""
    root = unpack("5.3.3-v2", tmp_path)
    uri, none = put_there(root, bucket), bucket % "nothing"
    assert run(["diff", str(root), uri]) == 0
    assert capsys.readouterr() == ("The same (only messages were compared)\n", "")
    to = ["--to", str(tmp_path / "out")]
    assert run(["export", uri, *to, "-q"]) == 0
    wanted = rows(ask_of(root, fields="position,topic,properties"))
    found = pq.read_table(tmp_path / "out", columns=["position", "topic", "properties"])
    assert found.to_pylist() == wanted
    for words in (["diff", str(root), none], ["diff", none, uri], ["export", uri, none, *to]):
        capsys.readouterr()
        assert run(words) == 5
        out, err = capsys.readouterr()
        assert out == "" and f"no commitlog here: {none}" in err
