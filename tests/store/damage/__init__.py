"""Tests of `store.damage`."""
