"""The command line: one module per command, each a thin layer over `store` or `pipeline`.

`declared` declares commands and options, `options` has the options that commands share. Modules whose name ends in
`_text` make the text output. A module may import everything, and imports heavy modules inside functions.
"""

import gc

# Imports make many objects and hardly any garbage: fewer collections save a tenth of the time of a short command,
# and a long command does not notice the difference.
gc.set_threshold(50_000, 20, 20)
