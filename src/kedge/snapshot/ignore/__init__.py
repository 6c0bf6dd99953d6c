"""Git's ignore rules and attributes: which files git ignores, and which it would convert."""
