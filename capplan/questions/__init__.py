"""One module a question that a user asks: it resolves the inputs, calls the formulas and assembles an `Answer`.

These functions are the Python twins of the commands (``capplan.kv`` is ``capplan kv``).
"""
