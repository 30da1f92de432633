"""`repair`: targeted repairs of the configuration and of everything derived from the log.

It shares plan, journal, apply and undo with `recover`. `parts` has the parts to choose from, `repair` makes the plan,
and each part that `recover` leaves alone has a module; `convert` makes a store of another kind in a new directory.
It may use `offsets`, `salvage`, `verify` and all below it.
"""
