"""The papers' tasks, one module each: a data set, a model, a loss and metrics."""
