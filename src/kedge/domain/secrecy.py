"""The environment variables that hold kedge's own secrets, which nothing that it starts is told."""

SERVER_PASSWORDS = ("KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD")
"""What clients must say; the first that is set counts."""
DATABASE_URL = "KEDGE_DATABASE_URL"
"""May have a password in it."""
OWN_SECRETS = (*SERVER_PASSWORDS, DATABASE_URL)
