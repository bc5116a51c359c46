"""Sources of clients' data: files, downloads, arrays."""
