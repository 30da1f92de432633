"""Group G: the configuration (spec 08, I-140 … I-155)."""
