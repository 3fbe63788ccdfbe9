"""What others measured, read once for the whole product: logs, benchmark results, kernel tables."""
