"""Gangs as real controllers make them: recordings are replayed and compared."""
