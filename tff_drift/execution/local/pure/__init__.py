"""A client's graph with variables, as a pure function that can be vectorized."""
