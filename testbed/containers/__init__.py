"""Adapters to the tools that hold and disturb containers: Docker's SDK, Toxiproxy, and what a container's image runs.

An adapter knows its tool and nothing of training: the containers engine, the injectors and the commands `up`, `down`
and `clean` are built on it. Everything that it raises is an `EngineError` (exit code 3), or a `ConfigurationError`
(exit code 2) for a value that the tool would choke on.
"""
