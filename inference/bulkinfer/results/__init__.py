"""Rows and the Parquet parts that hold them: written, read, verified."""
