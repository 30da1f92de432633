"""The command line: one module per command."""

import gc

# A start makes many objects and hardly any garbage: looking for it less often saves a tenth of the
# time of a short command, and costs nothing a long one would notice.
gc.set_threshold(50_000, 20, 20)
