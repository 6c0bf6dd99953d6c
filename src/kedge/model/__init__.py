"""Models: one interface for an agent's requests and their answers, for all providers."""
