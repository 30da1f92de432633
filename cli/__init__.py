"""The command line: one module per command, each a thin shell over `store` or `pipeline`.

`declared` says what a command line is, `options` which options commands share; what is printed as text
stands in modules that end in `_text`. It may use everything, and imports what is heavy in functions.
"""

import gc

# A start makes many objects and hardly any garbage: looking for it less often saves a tenth of the
# time of a short command, and costs nothing a long one would notice.
gc.set_threshold(50_000, 20, 20)
