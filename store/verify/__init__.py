"""`verify`: the invariants, each one function registered under its code.

The room `findings` has what is said of each, `register` which function checks it and when,
`context` what the functions look at, `run` the order of it all. One module of checks per group of
the catalogue; `start` is that of what the next start of a broker does. `verdict` makes one sentence
of all findings. It may use `recover`, `put` and all below them.
"""
