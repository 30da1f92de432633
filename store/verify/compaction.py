"""Group H: compaction and HA (spec 08, I-160 … I-171)."""
