"""What a computation does: TFF's language into phases of operations."""
