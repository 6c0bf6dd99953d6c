"""A fuzzer for undo. Its oracle knows who wrote every line, and uses nothing of kedge's planner.

`program` says what happens, `world` knows the truth about it, `oracle` judges every undo. The same
programs run on two levels: `planner_level` gives histories in memory to the pure planner,
`disk_level` drives a real engine on real files. `mutations` breaks kedge to prove that it is seen.
"""
