"""Records of a run: its folder, checkpoint, metrics and result."""
