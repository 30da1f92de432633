"""Tests of `store/repair`."""
