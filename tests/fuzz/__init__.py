"""Fuzzing: targets, a corpus for each, and two ways to make more inputs (hypothesis, atheris).

    python -m tests.fuzz TARGET [SECONDS [SEED]]   # guided by coverage
    python -m tests.fuzz.seeds                     # rebuild the corpus

An input that breaks a target becomes `corpus/TARGET/bug-….bin` once it is mended; every run of the fast
tests plays the corpus. A new reader gets a target of its own.
"""
