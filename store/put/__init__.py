"""`put`: messages as a producer gives them, and the writer that appends them as a broker would.

What a producer asks for is pure functions from a message to what a broker stores. `open_store` has
the parts of a store and the order in which they change, `writer` appends to it one by one, `bulk`
by columns. It may use `inspect`, `session` and all below them.
"""
