"""Place pods and gangs on nodes and devices: fit, scores, affinity, queue limits."""
