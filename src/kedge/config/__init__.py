"""Configuration: OpenCode's files and kedge's own, merged; untrusted files can only restrict."""
