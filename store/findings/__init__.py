"""What can be wrong with a store: the invariants as data, findings, and the commands that mend them.

Whoever tells of something wrong, or of what to do next, uses it; which function checks an invariant
is in `verify`. It may use `disk` and all below it.
"""
