"""Finding messages: by key, queue, time, address, filter; following a log that grows.

`StoreReader` in `store` is the entry point for readers. It may use `settings` and all below it.
"""
