"""What a launch reports: counts, lines, status.json, summary.json, the exit code."""
