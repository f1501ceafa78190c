"""Routes about what was: the past of workloads."""
