"""Models: what an agent asks, and what it hears back, whoever the provider is."""
