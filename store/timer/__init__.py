"""Timer log and timer wheel: read, write, and what a broker's start makes of them.

There is one class of entries and one walk of chains. It may use `index`, `queues` and all below them.
"""
