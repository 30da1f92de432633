"""`repair`: targeted mends of what is derived from the log, and of the configuration.

It shares plan, journal, apply and undo with `recover` (`store/recovery`). `parts` says what can be
chosen, `repair` makes the plan, one module mends each part that `recover` leaves alone.
"""
