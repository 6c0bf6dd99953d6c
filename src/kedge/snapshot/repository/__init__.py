"""Reads the user's own git repository; never writes to it."""
