"""Group E: checkpoint and abort (spec 08, I-110 … I-118)."""
