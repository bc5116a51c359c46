"""Experiments of the papers, each to be run by one command: data, without TensorFlow.

A module per paper has its presets, in words of `preset`; `catalogue` collects them and
`requests` reads what a user asks of them. `experiments.training.studies` runs them, and
`experiments.reports.outputs` makes their tables and figures.
"""
