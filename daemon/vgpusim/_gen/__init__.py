"""Generated Python: built, not committed."""
