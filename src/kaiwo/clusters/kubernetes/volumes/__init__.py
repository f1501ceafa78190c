"""Volume claims, volumes and storage classes: where they let a pod go."""
