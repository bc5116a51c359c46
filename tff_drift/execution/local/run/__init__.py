"""Phases run: server, each client in turn or stacked, accumulation."""
