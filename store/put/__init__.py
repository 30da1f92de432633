"""`put`: messages as a producer gives them, and the writer that appends them as a broker would.

What a producer asks for is pure functions from a message to what a broker stores. May use the parts
and all below them.
"""
