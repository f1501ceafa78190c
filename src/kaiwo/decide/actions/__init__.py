"""What a cycle does with waiting work: allocate, reclaim, preempt, consolidate, stop stale gangs."""
