"""Drills: a damaged copy of a store, by named scenario and seed. The store itself is never touched.

`scenario` says what can go wrong, as data: it looks at the store and gives edits. `copy` makes the
copy, `drill` carries the edits out there. It may use `search` and all below it.
"""
