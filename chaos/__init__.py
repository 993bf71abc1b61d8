"""Faults, schedules and scenarios as pure data and decisions."""
