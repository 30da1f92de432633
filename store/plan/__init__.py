"""Plan, as a list of edits, the changes after which a store loses nothing more. Nothing is written.

Under the policy `keep` damage in the middle of a log costs only the damaged records: tombstones, fillers and BLANKs
close the holes. It may use `start`, `search` and all below them.
"""
