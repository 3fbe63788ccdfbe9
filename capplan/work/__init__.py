"""What one engine step must do: a ledger of operators with FLOPs, bytes and messages, free of hardware."""
