"""What goes in and comes out: arguments, clients' data, results."""
