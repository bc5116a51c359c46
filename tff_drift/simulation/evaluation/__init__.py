"""Evaluation of models on test clients."""
