"""Engines that run a scenario, the command line, run directories, reports and benchmarks."""
