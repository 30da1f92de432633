"""Foreign text in pages and tables: harmless, whatever it is."""

from __future__ import annotations

import sys

import pytest


def test_texts_of_a_store_are_escaped_in_notebooks() -> None:
    from mqstore.store.output.escaped import table_html

    marked = table_html("<script>", ["<b>"], [["<i>&"]])
    assert marked is not None and "<script>" not in marked and "<i>" not in marked
    odd = table_html("\udcff", [], [["\udcff"]])
    assert odd is not None and odd.encode().count(b"udcff") == 2


def test_a_notebook_without_jinja_shows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqstore.store.output import escaped

    escaped.templates.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert escaped.table_html("title", [], []) is None
