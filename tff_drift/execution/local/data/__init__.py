"""Inputs and outputs of computations: arguments, clients' data, results."""
