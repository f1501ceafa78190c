"""What `kaiwo gpus -o wide` says of a device: who is on it, how well they are kept apart, granted beside measured."""

from kaiwo.api.views.nodes import GpuView, MeasuredView, TenantView
from kaiwo.cli.lists.columns import GPU, shown_columns, table_row
from kaiwo.model.workload import Phase

USE = MeasuredView(35, 1_536, processes=2)
LEFT = TenantView("default/left", "main-0", 300, 43_131, Phase.RUNNING, "mps", USE)
RIGHT = TenantView("team/right", "main-0", 700, 100_639, Phase.RUNNING, "mps", MeasuredView(None, 51_200))


def shown(gpu: GpuView, output: str = "wide") -> dict[str, str]:
    columns = shown_columns(GPU, output)
    return dict(zip([column.title for column in columns], table_row(columns, gpu, 0), strict=True))


def test_two_tenants_of_one_gpu() -> None:
    measured = MeasuredView(95, 91_507, 700, 61, 4)
    cells = shown(GpuView("vm", "gpu-0", 0, "H200", 143_771, 0, 1, True, "", [LEFT, RIGHT], measured=measured))
    assert cells["WORKLOADS"] == "left (0.3, mps), team/right (0.7, mps)"
    assert cells["GRANTED AND MEASURED"] == (
        "left 0.3/42.1 GiB uses 35 %/1.5 GiB, team/right 0.7/98.3 GiB uses -/50 GiB"
    )
    assert (cells["BUSY"], cells["POWER"], cells["TEMP"], cells["USED MEMORY"]) == ("95 %", "700 W", "61 C", "89.4 GiB")
    assert "BUSY" not in shown(GpuView("vm", "gpu-0", 0, "H200", 1, 0, 1, True, "", []), "table")


def test_a_partition_and_a_device_that_nobody_measures() -> None:
    tenant = TenantView("default/small", "main-0", 125, 24_576, Phase.RUNNING, "partition")
    gpu = GpuView("a", "gpu-0-p1", 1, "MI300X", 24_576, 0, 0, True, "", [tenant], "CPX+NPS1", "gpu-0")
    cells = shown(gpu)
    assert (cells["PARTITION"], cells["WORKLOADS"], cells["BUSY"]) == ("CPX+NPS1", "small", "")


def test_a_gpu_that_waits_for_another_mode_is_not_ill_and_keeps_its_tenants() -> None:
    tenant = TenantView("default/small", "main-0", 125, 24_576, Phase.RUNNING, "partition")
    facts = ("a", "gpu-0-p1", 1, "MI300X", 24_576, 0, 0, False, "closed to new work")
    cells = shown(GpuView(*facts, [tenant], "CPX+NPS1", "gpu-0", change="draining"))
    assert (cells["STATE"], cells["WORKLOADS"]) == ("draining", "small; closed to new work")
    assert shown(GpuView(*facts, [], change="changing"))["STATE"] == "changing"
    assert shown(GpuView(*facts, []))["STATE"] == "unhealthy"
