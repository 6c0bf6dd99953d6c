"""kedge's values: ids, sessions, messages, events, errors. No I/O, no re-exports."""
