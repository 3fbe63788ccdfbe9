"""A whole model in torch with random weights, built from its description: what phases are measured on.

No module classes and no checkpoints: a layer is its tensors and two functions, one for a prompt and one for a token.
Gated feed-forwards use silu, whatever function the model has; no figure depends on it.
"""
