"""Errors: one line each, with path, offset and advice."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from mqstore.store import errors
from mqstore.store.errors import Denied, Missing, NoSpace, StoreError, Unreadable, from_os_error


def test_says_what_where_and_what_to_do() -> None:
    error = StoreError("bad unit", path=Path("/s/q/0"), offset=40, hint="run mqstore verify")
    assert str(error) == "bad unit: /s/q/0 at 40; run mqstore verify"
    assert str(StoreError("no record", offset=7)) == "no record: at 7"
    assert str(StoreError("no record")) == "no record"


def test_a_hint_that_takes_time_is_found_when_it_is_wanted() -> None:
    """Of a thousand topics without queues nobody wants to know which name is similar."""
    asked = Mock(return_value="did you mean orders?")
    error = StoreError("no such topic: ordres", hint=asked)
    asked.assert_not_called()
    assert str(error) == "no such topic: ordres; did you mean orders?"


def test_is_one_line_whatever_the_path_holds() -> None:
    text = str(StoreError("cannot read", path="/s/a\nb\x1b[31m\udc80"))
    assert text == "cannot read: /s/a\\nb\\x1b[31m\\udc80"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, Missing),
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.EACCES, Denied),
        (errno.EIO, Unreadable),
        (errno.ELOOP, Unreadable),
    ],
)
def test_system_errors_find_their_place(number: int, kind: type[StoreError]) -> None:
    error = from_os_error(OSError(number, "why"), "/s/x")
    assert type(error) is kind
    assert error.path == "/s/x"


def test_a_process_with_too_many_open_files_is_told_of_the_limit() -> None:
    assert from_os_error(OSError(errno.EMFILE, "Too many open files"), "/s/x").hint == (
        "raise the limit of open files (ulimit -n)"
    )


def test_all_are_store_errors() -> None:
    kinds = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    assert len(kinds) >= 12
    assert all(issubclass(kind, StoreError) for kind in kinds)


def test_a_file_where_a_directory_belongs(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"x")
    for path in (tmp_path / "index", tmp_path / "index" / "20261120220608875"):
        with pytest.raises(Unreadable) as caught, errors.os_errors(path):
            os.scandir(path)
        told = f"not a directory but a file: {tmp_path}/index; if a directory belongs there, move the file away"
        assert str(caught.value) == told


def test_a_link_to_nothing_says_where_it_leads(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000008192"
    path.symlink_to("/nonexistent/disk")
    with (
        pytest.raises(
            Missing, match=r"^a link to /nonexistent/disk, where nothing is: .*8192; mount its disk"
        ) as caught,
        errors.os_errors(path),
    ):
        path.stat()
    assert caught.value.path == str(path)
