"""What a broker does, as data and pure functions: profiles of versions, dispatch, load rules.

Delay levels, topics, the filter language, and the snapshot of a disk that a start is simulated on.
It may use `log` and all below it.
"""
