"""Who was evicted for others and when, and the run of moves that people asked for."""
