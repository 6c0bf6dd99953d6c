"""The private git object store that snapshots live in."""
