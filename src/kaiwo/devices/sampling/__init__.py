"""Sample the GPUs of a machine every second, at little cost."""
