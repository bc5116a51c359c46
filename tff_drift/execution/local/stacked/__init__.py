"""Clients that train many at a time, on stacks of their tensors."""
