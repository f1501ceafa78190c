"""GPUs of a machine: discovery, sampling, sharing, and the node agent."""
