"""Drills: a damaged copy of a store, by named scenario and seed. The store itself is never touched.

`scenarios` says what can go wrong, as data: a scenario looks at the store and gives edits. `copy` makes
the copy, `drill` carries the edits out there.
"""
