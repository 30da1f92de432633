"""What to change in a store so that nothing more is lost, as a list of edits. Nothing is written.

Under the policy `keep` damage in the middle of a log costs the damaged records, nothing else: holes
are closed with tombstones, fillers and BLANKs. It may use `start`, `search` and all below them.
"""
