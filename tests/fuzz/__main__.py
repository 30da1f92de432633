"""Fuzz one target, guided by coverage: `python -m tests.fuzz TARGET [SECONDS [SEED]]`.

Exit code 0: nothing found. Else the input is in the folder of the environment variable
MQSTORE_FUZZ_FOUND (default: the current one), named crash-…, timeout-… or oom-….
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

SECONDS_PER_INPUT = 20
LARGEST_INPUT = 8192
MEGABYTES = 2048


def main() -> None:
    """Hand over to libFuzzer, which ends the process."""
    import atheris

    name, seconds, seed = (*sys.argv[1:], "60", "1")[:3]
    with atheris.instrument_imports(include=["mqstore"]):
        targets = importlib.import_module("tests.fuzz.all_targets").TARGETS
    corpus = importlib.import_module("tests.fuzz.target").CORPUS / name
    found = Path(os.environ.get("MQSTORE_FUZZ_FOUND", "."))
    grown = found / f"grown-{name}"
    grown.mkdir(parents=True, exist_ok=True)
    arguments = [
        *(sys.argv[0], str(grown), str(corpus)),
        *(f"-max_total_time={seconds}", f"-seed={seed}", f"-timeout={SECONDS_PER_INPUT}"),
        *(f"-rss_limit_mb={MEGABYTES}", f"-max_len={LARGEST_INPUT}"),
        *(f"-artifact_prefix={found}/", "-print_final_stats=1"),
    ]
    atheris.Setup(arguments, targets[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
