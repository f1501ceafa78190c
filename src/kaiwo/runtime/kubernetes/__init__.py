"""What `kaiwo scheduler` runs on Kubernetes besides the loop: leadership, published reasons, extender answers."""
