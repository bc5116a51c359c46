"""Tasks on a user's own tables, folders, arrays and files."""
