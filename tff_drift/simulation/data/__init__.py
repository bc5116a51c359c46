"""Clients' examples: where they are read, batched, sampled and shared."""
