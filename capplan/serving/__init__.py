"""Many requests: steady state, simulation, prefix reuse, speculation and disaggregation."""
