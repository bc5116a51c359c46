"""Reports on runs and data: tables, figures, summaries, files."""
