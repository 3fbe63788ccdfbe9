"""capplan: a capacity and cost planner for LLM inference."""

__version__ = "0.1.0"
