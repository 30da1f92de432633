"""`mqstore damage`: a damaged copy of a store, for drills and tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .declared import Argument, Option, bad_parameter
from .options import Common, shared
from .record_types import columns_of
from .terminal import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..store.damage.scenario import Drill


@shared()
def damage(
    store: Annotated[Path | None, Argument(metavar="STORE", help="The store's root directory.")] = None,
    to: Annotated[Path | None, Option("--to", metavar="COPY", help="The copy: a new or an empty directory.")] = None,
    scenario: Annotated[
        str | None, Option("--scenario", "-s", metavar="NAME", help="What happens to the copy; see --list.")
    ] = None,
    seed: Annotated[int, Option("--seed", metavar="N", help="Random seed: the same seed gives the same damage.")] = 1,
    list_: Annotated[bool, Option("--list", "-l", help="List the scenarios.")] = False,
    *,
    common: Common,
) -> None:
    """Make a damaged copy of a store, for drills and tests. STORE itself is never changed.

    A scenario is a mishap that happened to a real broker; the seed decides where it strikes. Every change is
    listed, so that you can see what a recovery brings back.

    Exit code: 0 done; 1 the store lacks what the scenario damages; 5 cannot read or write.

    \b
    Examples:
      mqstore damage --list
      mqstore damage /data/store --to /tmp/drill --scenario torn-tail
      mqstore damage /data/store --to /tmp/drill --scenario illegal-magic --seed 7 --format json
    """
    if list_:
        with common.open_output() as out:
            out.records(_scenarios(), text="{name:20}{summary}".format_map, columns=columns_of("scenario"))
        return
    if store is None or to is None or scenario is None:
        raise bad_parameter("STORE, --to COPY and --scenario NAME are needed, or --list")
    out = common.checked_output("drill")
    done = _drill(store, to, scenario, seed, common)
    for path in done.left_out:
        common.warn(f"neither file nor directory, not copied: {path}")
    out.note_done(f"the new store is complete: {to}")
    with out:
        out.record(_json(done, store, to), text=_text)


def _scenarios() -> Iterator[dict[str, Any]]:
    from ..store.damage.scenarios import scenarios

    for each in scenarios().values():
        yield {"type": "scenario", "name": each.name, "summary": each.summary, "links": list(each.links)}


def _drill(store: Path, to: Path, name: str, seed: int, common: Common) -> Drill:
    from ..store.damage.scenario import drill
    from ..store.damage.scenarios import scenario_of
    from ..store.disk.files import Files
    from ..store.search.store import StoreReader

    chosen = scenario_of(name)
    with StoreReader(store, common.config()) as opened:
        total = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        with common.progress("copying", total) as bar:
            return drill(opened, to, chosen, seed, Files(), bar.advance)


def _json(done: Drill, store: Path, to: Path) -> dict[str, Any]:
    edits = [{name: value for name, value in edit.to_json().items() if name != "codes"} for edit in done.edits]
    return {
        "type": "drill",
        "store": str(store),
        "copy": str(to),
        "scenario": done.scenario.name,
        "seed": done.seed,
        "edits": edits,
    }


def _text(record: Mapping[str, Any]) -> str:
    from ..store.counted import bytes_text

    lines = [f"{record['copy']}: {record['scenario']}, seed {record['seed']}"]
    for edit in record["edits"]:
        where = f" to {bytes_text(edit['length'])}"
        if edit["kind"] != "truncate":
            where = f" at {edit['offset']}, {bytes_text(edit['length'])}"
        lines.append(f"  {edit['kind']:9}{edit['path']}{where}: {edit['reason']}")
    return page_of(lines)
