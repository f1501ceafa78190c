"""Plan moves of running pods: to make room for waiting ones, to empty nodes, or to balance their load."""
