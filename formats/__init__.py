"""Bytes: construct schemas, one module per file kind, and what is derived from them. No I/O."""
