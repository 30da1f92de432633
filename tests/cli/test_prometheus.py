"""`verify --format prometheus`."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from .. import stores
from .datadriven import run_here


def test_metrics_parse(world: Path, tmp_path: Path) -> None:
    target = tmp_path / "mqstore.prom"
    both = [str(world / "5.3.3-killed-page"), str(world / "5.3.3-clean")]
    result = run_here(["verify", *both, "--format", "prometheus", "-o", str(target)])
    assert (result.code, result.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == [target]
    assert oct(target.stat().st_mode & 0o777) == "0o644"
    families = {f.name: f for f in text_string_to_metric_families(target.read_text())}
    assert all(f.type == "gauge" and f.documentation for f in families.values())
    assert all(name.startswith("mqstore_verify_") for name in families)

    def value(name: str, store: str, **labels: str) -> float:
        wanted = {"store": store, "mode": "deep", **labels}
        (sample,) = [s for s in families[f"mqstore_verify_{name}"].samples if s.labels == wanted]
        return sample.value

    assert value("status", both[0], status="damaged") == 1
    assert value("status", both[0], status="clean") == 0
    assert value("status", both[1], status="clean") == 1
    assert value("complete", both[0]) == 1
    assert value("findings", both[0], severity="fatal") == 2  # the damage, and what a start loses
    assert value("last_run_timestamp_seconds", both[1]) > 1e9


def test_each_store_has_each_series_once_whether_it_can_be_read_or_not(tmp_path: Path) -> None:
    """Patterns overlap, and stores go away."""
    store, none = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "none"
    named = [str(store), str(none), f"{store.parent}/./{store.name}/", os.path.relpath(store)]
    result = run_here(["verify", *named, "--quick", "--format", "prometheus"])
    assert result.code == 5 and result.stderr.count("no such directory") == 1
    samples = [s for f in text_string_to_metric_families(result.stdout) for s in f.samples]
    series = [(s.name, *sorted(s.labels.items())) for s in samples]
    assert len(series) == len(set(series))
    told = {(s.labels["store"], s.labels["status"]) for s in samples if s.name.endswith("_status") and s.value}
    assert told == {(str(store), "clean"), (str(none), "unreadable")}


def test_metrics_go_where_a_link_leads(tmp_path: Path) -> None:
    """As each other --output: the link stays, and the collector's file is replaced."""
    store = stores.unpack("5.3.3-clean", tmp_path / "disk")
    target, link = tmp_path / "collected", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    words = ["verify", str(store), "--quick", "--format", "prometheus", "-o", str(link)]
    assert run_here(words).code == 0
    assert link.is_symlink() and target.read_text().startswith("# HELP mqstore_verify_")


def test_a_strange_path_is_a_good_label(tmp_path: Path) -> None:
    from mqstore.cli.prometheus import metrics
    from mqstore.store.verify.verdict import Status, Verdict

    path = Path(os.fsdecode(b'/a"b\\c\nd\xff'))
    text = metrics([(path, Verdict(Status.CLEAN, [], 0, 0, 0.0))], 1.5)
    text += metrics([], 1.5, failed=[path])
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    assert {s.labels["store"] for s in samples} == {'/a"b\\c\nd\ufffd'}
    text.encode()
