"""The only place in services with clocks, threads, sockets and files: drives the pure roles over gRPC."""
