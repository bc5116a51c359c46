"""Experiments: the command line, the default settings and the reports."""
