"""How each family of faults acts: one small state machine per fault, driven by `chaos.driver`."""
