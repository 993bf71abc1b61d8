"""One checkable property of a run's history per module."""
