"""What tasks' models are made of: nets, losses and metrics that several tasks share."""
