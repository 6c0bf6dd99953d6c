"""Which files git would ignore, and which it would convert."""
