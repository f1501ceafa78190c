"""What the cluster state learns from events beyond the objects themselves: the mix of requests, and nodes that fail."""
