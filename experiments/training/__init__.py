"""From the settings of runs to their results: processes, checks, training, search."""
