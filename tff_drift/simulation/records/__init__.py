"""What a run leaves behind: its folder, checkpoint, metrics and result."""
