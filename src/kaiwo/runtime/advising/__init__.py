"""What work used, the adjustments that follow from it, and advice and capacity plans from a worker process."""
