"""Models of real providers, through pydantic-ai; imported on first use, because that is slow."""
