"""`report`: a store on one page, for people and for a ticket: the verdict, what a start does, pictures.

`gather` counts beside the checks of `verify`, in their pass over the log, so that nothing is read
twice, and in a memory that does not grow with the log, and asks verdict, groups and timers;
`figures` makes shapes of numbers, `page` one file of HTML. It may use `verify`, `offsets` and all
below them.
"""
