"""Drills: a damaged copy of a store, by named scenario and seed. The store itself is never touched.

`scenario` and `scenarios` say what can go wrong, as data: a scenario looks at the store and gives edits; `drill` copies
the store and makes the edits in the copy. It may use `search` and all below it.
"""
