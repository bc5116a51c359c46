"""The callbacks of runs, public as `tff_drift.simulation.callbacks`."""
