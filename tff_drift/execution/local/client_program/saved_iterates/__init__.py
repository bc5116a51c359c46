"""What a loop over batches saves for a later one, as UGA's does, in lists."""
