"""Writing messages: as a producer sends them, appended as a broker would append them.

Pure functions turn a producer's message into what a broker stores. `open_store` has the parts of a store and the order
in which they change; `writer` appends single messages, `bulk` columns of messages. It may use `inspect`, `session` and
all below them.
"""
