"""Answers for people and machines: tables, JSON, explanations, plots."""
