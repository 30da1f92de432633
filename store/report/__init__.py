"""`report`: a store on one page, for people and for a ticket: the verdict, what a start does, pictures.

`gather` counts what is in the log during the pass of `verify`'s checks: nothing is read twice, and memory does not grow
with the log. It adds verdict, groups and timers. `figures` makes shapes of the numbers, `page` an HTML file. It may use
`verify`, `offsets` and all below them.
"""
