"""The values kedge is about (ids, sessions, messages, events, errors); no I/O, no re-exports."""
