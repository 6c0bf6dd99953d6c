"""Command lines: analyses what one would run, and runs it."""
