"""Taking a session's changes out of the tree, putting them back, and carrying through what a crash
interrupted."""
