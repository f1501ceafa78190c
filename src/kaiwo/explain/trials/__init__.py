"""What a trial of a change need not look at, which stops cannot help, and what a place protects."""
