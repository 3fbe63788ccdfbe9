"""Search over deployments: fit, sweep, Pareto front, advice."""
