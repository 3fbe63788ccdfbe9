"""Seconds: the roofline, laws of measured kernels, collectives, and the time of one step."""
