"""Descriptions: models, GPUs, deployments, workloads, formats and profiles, and the readers that find and load them."""
