"""Group F: the timer (spec 08, I-120 … I-137)."""
