"""Mutants that no test can notice, each with the reason: they are left out of the count.

The key is the module, the function, its line, and what the mistake makes of what; numbers of lines would not last.
"""

VERSIONS = "Versions are only compared: that they grow counts, not by how much."

EQUIVALENT: dict[tuple[str, str, str, str, str], str] = {
    ("snapshot/cluster_state.py", "ClusterState.apply_events", "self.version += 1", "1", "(2)"): VERSIONS,
    ("snapshot/cluster_state.py", "ClusterState.snapshot", "self.version += 1", "1", "(2)"): VERSIONS,
    ("snapshot/cluster_state.py", "ClusterState.record_cycle", "self.version += 1", "1", "(2)"): VERSIONS,
    ("snapshot/timed_changes.py", "apply_timed_changes", "state.version += 1", "1", "(2)"): VERSIONS,
    ("snapshot/timed_changes.py", "_apply_reservation_times", "state.version += 1", "1", "(2)"): VERSIONS,
    (
        "decide/planned_starts/future_capacity.py",
        "FutureCapacity.__init__",
        "used = max(1, int((self.ends < NEVER_S).sum(axis=1).max(initial=0)))",
        "self.ends < NEVER_S",
        "(self.ends <= NEVER_S)",
    ): "Slots without a release are carried along, and add nothing.",
    (
        "decide/turn_order.py",
        "Lane.run_length",
        "others = min((place for place, _, _ in self._heads[1:3]), default=None)",
        "3",
        "(4)",
    ): "The second least of a heap is one of the two below its top: the next one is not less than they are.",
    (
        "snapshot/node_table.py",
        "NodeTable.once",
        "self._derived.clear()",
        "self._derived.clear()",
        "pass",
    ): "The size of a cache: what is known of labels is kept for longer, and the answers are the same.",
    (
        "decide/placement/place_pods.py",
        "Placer.place",
        "if count > 1 and not placed:",
        "count > 1",
        "(count >= 1)",
    ): "A domain with a node that has room for one pod has room for all of one: the best node stays the best.",
    (
        "decide/placement/place_workload.py",
        "_Gang._orders",
        "if len(largest) > 1:",
        "len(largest) > 1",
        "(len(largest) >= 1)",
    ): "Of one kind of pod there is one order, and an order that was tried is not tried again.",
    (
        "decide/planned_starts/future_capacity.py",
        "",
        "GPUS = slice(FREE_GPU, FREE_GPU + 1)",
        "1",
        "(2)",
    ): "Only the first column of the slice is read.",
    (
        "snapshot/reserved_devices.py",
        "ReservedDevices.device_rank",
        "found[claim.rows, claim.columns] = 2",
        "2",
        "(3)",
    ): "Ranks are only sorted: the last one stays the last.",
    (
        "decide/make_room/victim_units.py",
        "VictimUnits._units_of",
        "may_go = len(running) if workload.may_go < 0 else workload.may_go",
        "workload.may_go < 0",
        "(workload.may_go <= 0)",
    ): "A workload of which none may go has no units, and is left before this line.",
    (
        "gpus/partitioning/planner_state.py",
        "",
        "def times(self, amounts: NodeResources, most: int = 1) -> int:",
        "1",
        "(2)",
    ): "Whoever leaves it out asks only whether one fits.",
    (
        "snapshot/capacity_timeline.py",
        "_blank",
        "-1,",
        "1",
        "(2)",
    ): VERSIONS,
    (
        "gpus/device_fit.py",
        "_must_check_vendor",
        "return bool(view.nodes.mixed_vendor_nodes) and bool(want.vendor)",
        "bool(view.nodes.mixed_vendor_nodes) and bool(want.vendor)",
        "(bool(view.nodes.mixed_vendor_nodes) or bool(want.vendor))",
    ): "Where one of the two is missing, every model is wanted.",
}
