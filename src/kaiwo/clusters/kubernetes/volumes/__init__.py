"""Volume claims, volumes and storage classes: which nodes they allow for a pod."""
