"""What a broker does, as data and pure functions: profiles of versions, dispatch, load rules.

Delay levels, topics, system topics, the filter language. May use `log`, `disk`, `columns`.
"""
