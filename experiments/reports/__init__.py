"""What runs and data resulted in: tables, figures, summaries, files."""
