"""A real Kubernetes control plane for the tests, the benchmark and `make kube`."""
