"""abort: present while a broker runs or after it crashed (spec/04-checkpoint-timer.md, 4.2).

Only its existence counts. 4.x leaves it empty, 5.x writes the process id as text; 5.x also leaves
an empty `abort.bak`, which has no meaning.
"""

from __future__ import annotations

from construct import GreedyBytes, Struct

ABORT = Struct("pid" / GreedyBytes * "process id as text (5.x), empty in 4.x")
