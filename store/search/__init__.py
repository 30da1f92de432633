"""Finding messages: by key, queue, time, address, filter; following a log that grows.

`Store` in `store` is the door for whoever reads. It may use `settings` and all below it.
"""
