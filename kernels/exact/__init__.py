"""Sweeps of dynamic programming over a model whose tables are known."""
