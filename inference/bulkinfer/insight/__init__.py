"""What came of a job, for people: rows shown, exported, scored, compared, reported; jobs listed, watched and removed.

Only clean.py changes a job: it removes what bulkinfer wrote. machine.py says what this machine can do, for doctor.
"""
