"""GPU sharing: which devices a pod gets, and how it is isolated from others."""
