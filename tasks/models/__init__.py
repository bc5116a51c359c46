"""Parts of tasks' models: nets, losses and metrics that several tasks share."""
