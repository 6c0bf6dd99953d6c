"""Whose change is it: what calls did to files, recorded with the parts that they belong to."""
