"""Bytes: the tensor inventory, weights, KV cache, recurrent states, paging and budgets."""
