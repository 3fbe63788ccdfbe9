"""How each answer looks: one module a question."""
