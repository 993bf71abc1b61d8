"""The roles as pure state machines, the invariants that judge them, and the shell that runs them over gRPC."""
