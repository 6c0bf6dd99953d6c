"""What kedge costs, as ratios within one run; it proves nothing about correctness."""
