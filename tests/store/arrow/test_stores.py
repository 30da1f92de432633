"""Which stores are meant, and what is asked of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.arrow.log_rows import fields_of
from mqstore.store.arrow.stores import Ask, as_path, folders_of, place_of, stores_of
from mqstore.store.errors import InvalidInput, Missing, Unreadable


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
    link = tmp_path / "link"
    link.symlink_to(a)
    assert stores_of([str(link), a, c]) == [str(link), c], "a link to a store is the same one"
    assert stores_of([c]) == [c], "a directory of that name is no pattern"


def test_a_file_uri_is_the_directory_that_it_names(tmp_path: Path) -> None:
    root = tmp_path / "a b?c#d%é"
    root.mkdir()
    uri = root.as_uri()
    assert "%20" in uri and stores_of([uri + "/", str(root)]) == [str(root)]
    assert stores_of([f"{tmp_path.as_uri()}/s#1?x"]) == [f"{tmp_path}/s#1?x"], "a file has neither query nor fragment"
    link = tmp_path / "link"
    link.symlink_to(root)
    assert place_of(uri) == place_of(link.as_uri()) == place_of(str(root))
    assert stores_of(["file:///"]) == ["/"]
    assert stores_of(["file://host/data/store/"]) == ["file://host/data/store"], "no directory of this machine"


def test_words_that_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("@other\n")
    (tmp_path / "zero").write_text("/data\0/store\n")
    for words, kind in (
        ([], InvalidInput),
        ([str(tmp_path / "none*")], Missing),
        ([f"@{tmp_path}/none"], Missing),
        ([f"@{tmp_path}/list"], InvalidInput),
        ([f"@{tmp_path}/zero"], InvalidInput),
        (["file:///data%00/store"], InvalidInput),
        ([f"@{tmp_path}"], Unreadable),
    ):
        with pytest.raises(kind):
            stores_of(words)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topcs": "a"}, "no option 'topcs'"),
        ({"fields": "topic,nothing"}, "no column 'nothing'"),
        ({"since": "tomorrow-ish"}, "tomorrow-ish"),
        ({"body": "yes"}, "not one of none, plain, stored"),
        ({"split_bytes": "-1"}, "split_bytes"),
        ({"split_bytes": "64"}, "split_bytes: 64 is below 4096 bytes"),
        ({"split_bytes": "0"}, "split_bytes"),
        ({"broker_config": "[1]"}, "not a JSON object"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=reason):
        fields_of(Ask.of({"path": str(tmp_path), **options}))


def test_folders_keep_apart_what_has_one_name() -> None:
    assert folders_of([Path("/d/a/store"), Path("/d/b/store")]) == ["a/store", "b/store"]
    assert folders_of([Path("/d/a")]) == [""]


@pytest.mark.parametrize("roots", [["/d/a", "/d/a/b"], ["/a%2Fb/a", "/a%2Fb", "/a"], ["/", "/x\udcff"]])
def test_no_folder_lies_in_another(roots: list[str]) -> None:
    folders = [Path("/new", folder) for folder in folders_of([Path(root) for root in roots])]
    assert len(set(folders)) == len(roots)
    assert {folder.parent for folder in folders} == {Path("/new")}


def test_a_place_in_object_storage_stays_in_the_target() -> None:
    names = folders_of([as_path("s3://a/../../../x"), as_path("s3://a/b")])
    assert not any(".." in Path(name).parts for name in names)


def test_no_store_is_taken_twice() -> None:
    with pytest.raises(InvalidInput, match="a store is named twice"):
        folders_of([as_path("s3://a/b"), as_path("s3://a/c/../b")])
