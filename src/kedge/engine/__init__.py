"""The engine: sessions, turns and events over a store."""
