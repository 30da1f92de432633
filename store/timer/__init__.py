"""Timer log and timer wheel: read, write, and what a start makes of them.

One class of entry and one walk of chains, whoever asks. It may use `index`, `queues` and all below
them.
"""
