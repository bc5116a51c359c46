"""Where clients' data comes from: files, downloads, arrays."""
