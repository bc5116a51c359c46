"""Experiments of the papers, each to be run by one command."""
