"""Rows, the Parquet parts that hold them, and _job.json: written, read and verified."""
