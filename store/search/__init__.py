"""Finding messages: by key, queue, time, address, filter; following a log that grows.

`Store` in `store` is the door for whoever reads. May use `broker`, the parts and all below them.
"""
