"""Kaiwo schedules GPU work."""

__version__ = "0.1.0"
