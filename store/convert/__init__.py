"""A store of one kind made of a store of another, in a new directory: the old one is only read.

    scan of the old log ▶ records at new places ▶ what names places follows ▶ queues and index by the plan of `recover`

It may use `salvage` and all below it.
"""
