"""`recover`: predict, by cases, what the next start of a broker does to a store, and what it loses.

The decision table of cases is data. It may use `inspect`, `session` and all below them.
"""
