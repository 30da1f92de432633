"""`verify`: the checks of invariants, each a function registered under the codes of its invariants.

The room `findings` has the texts of each invariant, `register` the function that checks it and when it is called,
`context` what checks look at, `run` their order. A group of the catalogue has its modules of checks; `start` has those
of the next start of a broker. `verdict` makes one sentence of all findings. It may use `recover`, `put` and all below
them.
"""
