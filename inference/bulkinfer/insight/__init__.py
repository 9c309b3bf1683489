"""What came of a job, for people: rows shown, exported, scored, compared and reported. Reads results, changes nothing in them."""
