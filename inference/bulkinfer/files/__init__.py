"""Files that are whole or absent: atomic writes, locks, checked JSON, downloads, archives."""
