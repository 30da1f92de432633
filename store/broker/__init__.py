"""What a broker does, as data and pure functions: profiles of versions, dispatch, load rules.

Also delay levels, topics, the filter language, and the snapshot of a disk on which a start is simulated. It may use
`log` and all rooms below it.
"""
