"""`repair`: targeted repairs of what is derived from the log, and of the configuration.

It shares plan, journal, apply and undo with `recover`. `parts` says what can be chosen, `repair`
makes the plan, one module is for each part that `recover` leaves alone; `convert` makes a store of
another kind, in a new directory. It may use `offsets`, `salvage`, `verify` and all below it.
"""
