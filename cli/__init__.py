"""The command line: one module per command, each a thin layer over `store` or `pipeline`.

`declared` declares commands and options, `options` has the options that every command has. Modules `…_text` make text
for people, modules `…_answer` a whole answer. A module may import everything, heavy modules inside functions.
"""

import gc

# Imports make many objects and hardly any garbage: fewer collections save a tenth of the time of a short command,
# and a long command does not notice the difference.
gc.set_threshold(100_000, 20, 20)
