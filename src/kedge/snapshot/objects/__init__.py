"""The private git object store that holds snapshots."""
