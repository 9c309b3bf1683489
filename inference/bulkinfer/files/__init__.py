"""Files that are complete or absent: atomic writes, locks, checked JSON, downloads, archives."""
