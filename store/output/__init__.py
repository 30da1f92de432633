"""Directories that a job makes: staged, added to, replaced, published at once or not at all.

None of them is a broker's store. May use `disk`.
"""
