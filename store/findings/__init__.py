"""What can be wrong with a store: the invariants as data, findings, and the commands that mend them.

It uses disk. Everybody who tells of something wrong, or of what to do next, uses it.
"""
