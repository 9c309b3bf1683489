"""The formats that rows are written in: one file for each family, one line for each name in export_rows.py."""
