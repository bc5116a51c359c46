"""What goes in and comes out: arguments, datasets, results."""
