"""What the agent reads of the web: guarded requests, and pages as text."""
