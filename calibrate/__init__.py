"""Measure kernels and whole phases on a device, fit a profile, and prove it."""
