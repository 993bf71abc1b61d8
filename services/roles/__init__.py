"""One pure state machine per role: events in, effects out."""
