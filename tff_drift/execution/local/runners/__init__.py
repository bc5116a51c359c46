"""Programs of clients, run for many clients at a time."""
