"""Stores of objects: buckets and web servers, behind one seam."""
