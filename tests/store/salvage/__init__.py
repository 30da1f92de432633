"""Tests of `store.salvage`."""
