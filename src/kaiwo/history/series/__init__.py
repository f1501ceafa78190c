"""Time series: what GPUs, nodes, queues, users, the cluster and Kaiwo itself did, for the last month."""
