"""Undoing changes of a session: what to do is planned here, without any I/O."""
