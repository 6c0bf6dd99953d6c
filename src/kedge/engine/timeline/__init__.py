"""Attribution: what calls did to files, recorded with the parts that they belong to."""
