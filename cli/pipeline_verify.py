"""`mqstore pipeline verify`: check the invariants of many stores at once, on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from ..store.counted import counted
from ..store.errors import StoreError
from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Exit, Option
from .exit_codes import ExitCode, exit_code_of, exit_code_of_status
from .options import Common, say, shared
from .pipeline_options import Spark, Stores, showing
from .verify import COLUMNS, WORST, VerifyFormat, groups_of, print_verdicts

if TYPE_CHECKING:
    from ..store.verify.verdict import Verdict


@shared(VerifyFormat)
def verify(
    stores: Stores,
    *,
    quick: Annotated[
        bool, Option("--quick/--deep", help="quick: only structure and ends; deep: everything (the default).")
    ] = False,
    only: Annotated[str | None, Option("--only", metavar="GROUP,…", help="Only these groups of checks.")] = None,
    findings: Annotated[
        bool, Option("--findings", help="List what is wrong also for several stores, not one line each.")
    ] = False,
    spark: Spark,
    broker_version: BrokerVersion = None,
    common: Common,
) -> None:
    """Check every invariant of many stores, as mqstore verify does of each. Writes nothing.

    Findings, summaries and exit code are those of mqstore verify. As text, several stores get a line each;
    --findings lists what is wrong. A store is one task; small stores share a Spark task, large ones start first. A
    log of 2 GiB or more that is larger than the share of two cores is checked in up to 32 parts, one task each; one
    task reads everything behind damage. A store that cannot be read is reported on stderr; the others are checked.

    Exit code: 0 all clean; 1 some store is damaged; 3 not shut down cleanly, nothing else; 5 some store cannot be
    read, no Spark.

    \b
    Examples:
      mqstore pipeline verify '/data/*/store'
      mqstore pipeline verify @stores.txt --quick --format ndjson
      mqstore pipeline verify @stores.txt --master spark://host:7077 --format prometheus
    """
    master, settings = spark.place(common)
    from ..pipeline.spark import spark_session
    from ..pipeline.tasks import cores_of
    from ..pipeline.verify import can_be_cut, tasks_of, verify_on
    from ..store.arrow.stores import log_sizes, stores_of
    from ..store.search.store import clock_ms

    common.open_output().check(COLUMNS)
    groups = groups_of(only)
    warn_of_nearest_version(broker_version, common)
    roots, now_ms = stores_of(stores), clock_ms()
    sizes, _ = log_sizes(roots, common.config())
    common.explain(f"starting Spark on {master} for {counted(len(roots), 'store')}")
    with (
        showing("checking", sum(sizes.values()), None, common, in_bytes=True) as tell,
        spark_session(master, settings, in_python=True) as session,
    ):
        tasks = tasks_of(
            roots,
            common.config(),
            now_ms,
            quick=quick,
            groups=groups,
            broker_version=broker_version,
            sizes=sizes,
            in_parts=can_be_cut(sizes, common.config(), cores_of(session)),
        )
        found = verify_on(session, tasks, tell)
    codes, failed = [ExitCode.DONE], list[str]()

    def verdicts() -> Iterator[tuple[str, Verdict]]:
        for path, verdict in found:
            if isinstance(verdict, StoreError):
                say(str(verdict))
                codes.append(exit_code_of(verdict))
                failed.append(path)
            else:
                codes.append(exit_code_of_status(verdict.status))
                yield path, verdict

    brief = len(roots) > 1 and not findings
    given = common.given(broker_version)
    print_verdicts(verdicts(), common, given, quick=quick, brief=brief, failed=failed)
    raise Exit(max(codes, key=WORST.index))
