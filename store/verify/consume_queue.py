"""Group C: consume queues (spec 08, I-060 … I-087)."""
