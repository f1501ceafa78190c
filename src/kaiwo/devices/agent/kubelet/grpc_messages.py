"""The gRPC messages of the kubelet's device plugin (v1beta1) and pod resources (v1) APIs.

The protobuf classes are built from the tables below, without a compiler; a field's number is its position, from 1.
Unused fields are left out: protobuf skips unknown fields.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DEVICE_PLUGIN = "v1beta1"
POD_RESOURCES = "v1"
_TABLES: dict[str, dict[str, str]] = {
    DEVICE_PLUGIN: {
        "Empty": "",
        "DevicePluginOptions": "bool pre_start_required, bool get_preferred_allocation_available",
        "RegisterRequest": "string version, string endpoint, string resource_name, DevicePluginOptions options",
        "NUMANode": "int64 ID",
        "TopologyInfo": "NUMANode* nodes",
        "Device": "string ID, string health, TopologyInfo topology",
        "ListAndWatchResponse": "Device* devices",
        "PreStartContainerRequest": "string* devices_ids",
        "PreStartContainerResponse": "",
        "ContainerPreferredAllocationRequest":
            "string* available_deviceIDs, string* must_include_deviceIDs, int32 allocation_size",
        "PreferredAllocationRequest": "ContainerPreferredAllocationRequest* container_requests",
        "ContainerPreferredAllocationResponse": "string* deviceIDs",
        "PreferredAllocationResponse": "ContainerPreferredAllocationResponse* container_responses",
        "ContainerAllocateRequest": "string* devices_ids",
        "AllocateRequest": "ContainerAllocateRequest* container_requests",
        "Mount": "string container_path, string host_path, bool read_only",
        "DeviceSpec": "string container_path, string host_path, string permissions",
        "ContainerAllocateResponse": "map envs, Mount* mounts, DeviceSpec* devices, map annotations",
        "AllocateResponse": "ContainerAllocateResponse* container_responses",
    },
    POD_RESOURCES: {
        "ListPodResourcesRequest": "",
        "ContainerDevices": "string resource_name, string* device_ids",
        "ContainerResources": "string name, ContainerDevices* devices",
        "PodResources": "string name, string namespace, ContainerResources* containers",
        "ListPodResourcesResponse": "PodResources* pod_resources",
    },
}  # fmt: skip
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64,
}  # fmt: skip


def message_classes(package: str) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"kaiwo/{package}.proto", package=package, syntax="proto3")
    for name, row in _TABLES[package].items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(filter(None, row.split(", ")), 1):
            _add_field(message, package, number, *field.split())
    pool = descriptor_pool.DescriptorPool()  # not the shared one, where another library may define the same names
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in _TABLES[package]
    }


def _add_field(message: Any, package: str, number: int, kind: str, name: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.endswith("*") or kind == "map":
        field.label = _Field.LABEL_REPEATED
    kind = kind.removesuffix("*")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    if kind != "map":
        field.type_name = f".{package}.{kind}"
        return
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    for place, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=place, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    field.type_name = f".{package}.{message.name}.{entry.name}"


PLUGIN = message_classes(DEVICE_PLUGIN)
RESOURCES = message_classes(POD_RESOURCES)


def rpc_error_text(error: Any) -> str:
    return getattr(error, "details", lambda: "")() or type(error).__name__
