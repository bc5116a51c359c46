"""Rounds of training: the loop, what takes part in it, clients' states."""
