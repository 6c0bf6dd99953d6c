"""What users call the system: sessions, turns and events over a store."""
