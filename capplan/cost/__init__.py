"""Dollars: prices, cost per token, break-even."""
