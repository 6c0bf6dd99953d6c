"""What the user's own repository says; it is only ever read."""
