"""Writing: the only code that changes a store."""
