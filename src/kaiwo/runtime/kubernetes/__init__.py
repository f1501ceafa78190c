"""What `kaiwo scheduler` runs on Kubernetes beside the loop: leadership, published reasons, extender answers."""
