"""Group D: the index (spec 08, I-090 … I-109)."""
