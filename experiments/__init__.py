"""Experiments: the command line, presets and reports."""
