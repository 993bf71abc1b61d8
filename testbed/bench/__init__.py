"""Measurements: how fast the simulator, the processes and the exchange are, beside peers on the same machine.

`families.measure` runs them, one at a time; `table` prints what they found. Nothing here judges a run.
"""
