"""A client's graph as a program of tensors: start, step, finish."""
