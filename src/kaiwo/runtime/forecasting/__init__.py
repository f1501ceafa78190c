"""Run the cluster forward in a process of its own: expected starts, and what a change would bring."""
