"""Configuration: OpenCode's files and kedge's own, merged, trusted no more than they deserve."""
