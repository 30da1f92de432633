"""Moves of modules, carried out by a program: `moves.toml` says where each goes.

    python -m tests.house measure    # rooms of store/, floors, circles of imports, loose modules
    python -m tests.house move       # in a work tree without changes; leaves all of it to be committed

`move` rewrites imports (`imports.py`), what strings, comments and documents name (`texts.py`), moves code
and its tests with `git mv`, writes the __init__ of each room and a contract for it (`contracts.py`), and
lets ruff sort imports and format. It stops before it changes anything where the table does not fit the
tree: a module of the table is gone, two would have one name, or a new module has no room. All else is
as it was: no content is merged, no name inside of a module changes. It goes away once it has been run.
"""
