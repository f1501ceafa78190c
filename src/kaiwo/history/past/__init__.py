"""The past of each workload: why it waited, when it ran, who stopped it for whom, and what it used of its GPUs."""
