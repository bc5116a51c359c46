"""Simulation of federated training: clients' data, rounds, metrics."""

from tff_drift.simulation.client_datasets import ClientDatasets

__all__ = ["ClientDatasets"]
