"""Which stores are meant, and logs in object storage (S3 on the loopback)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.pipeline.sources.ask import Ask
from mqstore.pipeline.sources.fleet import stores_of
from mqstore.pipeline.sources.log import partitions_of
from mqstore.store.errors import InvalidInput, Missing, Unreadable

from ..stores import unpack
from .test_log_rows import ask_of, rows

FIELDS = "position,topic,queue_id,queue_offset,body,damage"


def test_directories_patterns_and_lists(tmp_path: Path) -> None:
    for name in ("a", "b", "[c]"):
        (tmp_path / name / "store").mkdir(parents=True)
    (tmp_path / "file").touch()
    a, b, c = (str(tmp_path / name / "store") for name in ("a", "b", "[c]"))
    listed = tmp_path / "list"
    listed.write_text(f"# the fleet\n{a}\n\n  {tmp_path}/?/store  \ns3://bucket/store/\n")
    assert stores_of([f"@{listed}", b, str(tmp_path / "none")]) == [
        *(a, b, "s3://bucket/store", str(tmp_path / "none"))
    ]
    assert stores_of([f"{tmp_path}/*/store"]) == sorted([a, b, c])
    assert stores_of([c]) == [c], "a directory of that name is no pattern"


def test_hundreds_of_stores(tmp_path: Path) -> None:
    """Each of many small stores is one part, those that are none are told."""
    one = unpack("5.3.3-lmq", tmp_path)
    for number in range(200):
        (tmp_path / "fleet" / f"{number:03}").mkdir(parents=True)
        if number % 10:
            (tmp_path / "fleet" / f"{number:03}" / "commitlog").symlink_to(one / "commitlog")
    parts = partitions_of(Ask.of({"path": f"{tmp_path}/fleet/*"}))
    assert len(parts) == 200
    assert sum(bool(part.problem) for part in parts) == 20


def test_words_that_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("@other\n")
    for words, kind in (
        ([], InvalidInput),
        ([str(tmp_path / "none*")], Missing),
        ([f"@{tmp_path}/none"], Missing),
        ([f"@{tmp_path}/list"], InvalidInput),
        ([f"@{tmp_path}"], Unreadable),
    ):
        with pytest.raises(kind):
            stores_of(words)


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
    s3 = fs.S3FileSystem(
        endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True
    )
    s3.create_dir("bucket")
    yield f"s3://bucket/%s?scheme=http&region=us-east-1&endpoint_override={host}:{port}"
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    server.stop()


def test_a_log_in_object_storage(bucket: str, tmp_path: Path) -> None:
    """The same rows as from a directory, damage among them, whole and in splits."""
    from pyarrow import fs

    root = unpack("4.9.7-killed-page", tmp_path)
    uri = bucket % root.name
    place, path = fs.FileSystem.from_uri(uri)
    place.create_dir(f"{path}/commitlog")
    for file in sorted(root.rglob("commitlog*/*")):
        if file.is_file() and file.stat().st_size:
            with place.open_output_stream(f"{path}/commitlog/{file.name}") as out:
                out.write(file.read_bytes())
    wanted = rows(ask_of(root, fields=FIELDS))
    assert rows(Ask.of({"path": uri, "fields": FIELDS})) == wanted
    small = Ask.of({"path": uri, "fields": FIELDS, "split_bytes": "100000"})
    assert len(partitions_of(small)) > 1
    assert rows(small) == wanted


def test_object_storage_that_is_not_there(bucket: str) -> None:
    (row,) = rows(Ask.of({"path": bucket % "none", "fields": "store,damage,position"}))
    assert "no commitlog here" in row["damage"]["reason"]
