"""Plan moves of running pods that make room for waiting ones."""
