"""Command lines: what one would run, and running it."""
