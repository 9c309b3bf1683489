"""The formats that rows are written in: one file for each family, one line for each name in rows_format.py."""
