"""Plan defragmentation in a worker process, and start and abort runs."""
