"""Plugins of strangers for tests; they are read as files by worker processes."""
