"""Goldens: what the commands say and write, of all stores and kinds of damage, kept as digests.

    python -m tests.goldens make OLD --part 1/2 &      # the code as it was; two parts for two cores
    python -m tests.goldens make OLD --part 2/2
    python -m tests.goldens compare OLD NEW            # NEW: the same of the code as it is now

A case is a store, what was done to it, and the broker version that is asked for (`cases.py`). It gives
a row for each command and policy (`commands.py`), of which nothing depends on when, where and by which
process it was made (`fixed.py`, `normal.py`). `output.py` keeps rows; what differs on purpose stands in
`on_purpose.toml`. A rebuilding of the code compares the rows of before and after.
"""
