"""Federated tasks: data, model, loss and metrics."""
