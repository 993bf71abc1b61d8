"""A testbed that stands: brought up by `gradstorm up`, it trains until `down`; faults are put on and off by hand."""
