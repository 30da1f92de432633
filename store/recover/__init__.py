"""`recover`: what the next start of a broker does to a store, by cases, and what it loses.

May use `start`, `plan`, `session` and all below them.
"""
