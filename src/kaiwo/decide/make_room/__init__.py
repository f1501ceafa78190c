"""Find victims whose eviction makes room for a waiting workload, and prove it where there are none."""
