"""Generated protobuf and gRPC modules; regenerate with 'make proto', never edit."""
