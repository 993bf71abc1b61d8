"""The invariants, one per file: each a checker over facts and replayed steps (`services.invariants.base`)."""
