"""Whose the lines of a file are."""
