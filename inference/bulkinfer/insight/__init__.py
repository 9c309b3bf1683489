"""What came of a job, for people: rows shown, exported, scored, compared, reported. Reads results, changes nothing there."""
