"""Inventories: written and read, masked, and taken from NVML, amdsmi and sysfs."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from machines import INVENTORIES, cpu, machine
from test_plan_properties import inventories

from tide_cli.errors import UsageError
from tide_cli.hardware.amd import amd_gpus, read_amdsmi
from tide_cli.hardware.inventory import Gpu, Inventory, format_capability, parse_capability
from tide_cli.hardware.inventory_file import read_inventory
from tide_cli.hardware.machine import read_nodes, take_inventory
from tide_cli.hardware.nvidia import read_nvml
from tide_cli.hardware.partition import partition_environment
from tide_cli.hardware.plan import Partition
from tide_cli.hardware.visible import visible


@given(inventories())
def test_an_inventory_survives_writing_and_reading(inventory: Inventory) -> None:
    assert read_inventory(inventory.to_json()) == inventory


@pytest.mark.parametrize("file", INVENTORIES, ids=lambda file: file.stem)
def test_the_files_survive_it_too(file: Path) -> None:
    inventory = read_inventory(file.read_text())
    assert read_inventory(inventory.to_json()) == inventory


NODE = {"node": 0, "cores": "0-3", "memory": "8GiB", "memory_free": "7GiB"}
GPU = {"index": 0, "name": "x", "memory": "80GiB", "capability": "9.0"}


def test_the_least_that_must_be_written() -> None:
    inventory = read_inventory(json.dumps({"version": 1, "nodes": [NODE], "gpus": [GPU]}))
    assert inventory.gpus == (Gpu(0, "x", 80 * 2**30, (9, 0)),)
    assert (inventory.cores, inventory.memory_free, inventory.disk_free) == ((0, 1, 2, 3), 7 * 2**30, None)
    amds = {"version": 1, "nodes": [NODE], "gpus": [GPU | {"capability": "gfx90a"}]}
    assert read_inventory(json.dumps(amds)).gpus[0].vendor == "amd"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "it is no JSON object"),
        ("{}", "version 1"),
        ('{"version": 1.0}', "version 1"),
        ('{"version": 2}', "version 1"),
        ('{"version": true, "nodes": []}', "version 1"),
        ('{"version": 1, "version": 1}', "stands twice"),
        ('{"version": 1, "nodes": [], "disk_free": NaN}', "NaN is no number"),
        ('{"version": 1, "nodes": [], "disk_free": -Infinity}', "-Infinity is no number"),
        ('{"version": 1, "disk_free": ' + "9" * 5000 + "}", "a number of 5000 digits"),
        ("[" * 100_000, "it is nested too deeply"),
        ({"nodes": []}, "nodes: there are no cores"),
        ({}, "nodes: it is missing"),
        ({"nodes": {}}, "nodes: {} is not a list"),
        ({"nodes": [7]}, "nodes[0]: 7 is not an object"),
        ({"nodes": [NODE], "nodez": []}, "nodez: there is no such field"),
        ({"nodes": [NODE], "disk_free": 1.5}, "disk_free: 1.5 is not a size"),
        ({"nodes": [NODE], "disk_free": "9" * 400}, "disk_free: "),
        ({"nodes": [NODE | {"cores": "x"}]}, "nodes[0].cores: 'x'"),
        ({"nodes": [NODE | {"cores": "9" * 5000}]}, "nodes[0].cores: "),
        ({"nodes": [NODE | {"cores": 3}]}, "nodes[0].cores: 3 is not a text"),
        ({"nodes": [NODE | {"node": -1}]}, "nodes[0].node: -1 is not a whole number"),
        ({"nodes": [NODE | {"node": True}]}, "nodes[0].node: true is not a whole number"),
        ({"nodes": [NODE | {"memory": 0}]}, "nodes[0].memory: there must be some"),
        ({"nodes": [NODE | {"memory": -5}]}, "nodes[0].memory: -5 is not a size"),
        ({"nodes": [NODE | {"memory": "2048TiB"}]}, "more than any machine has"),
        ({"nodes": [NODE | {"memory_free": "9GiB"}]}, "nodes[0].memory_free: it is more than memory"),
        ({"nodes": [NODE, NODE | {"cores": "4"}]}, "node 0 stands in it twice"),
        ({"nodes": [NODE, NODE | {"node": 1}]}, "core 0 stands in it twice"),
        *(
            ({"nodes": [NODE], "gpus": [GPU | changed]}, words)
            for changed, words in (
                ({"index": -1}, "gpus[0].index: -1 is not a whole number"),
                ({"index": 0.5}, "gpus[0].index: 0.5 is not a whole number"),
                ({"index": "0"}, 'gpus[0].index: "0" is not a whole number'),
                ({"index": None}, "gpus[0].index: it is missing"),
                ({"name": ""}, "gpus[0].name: it is empty"),
                ({"name": "a\nb"}, "gpus[0].name: "),
                ({"memory": "much"}, "gpus[0].memory: 'much' is not a size"),
                ({"memory": True}, "gpus[0].memory: true is not a size"),
                ({"memory": []}, "gpus[0].memory: [] is not a size"),
                ({"memory_used": "81GiB"}, "gpus[0].memory_used: it is more than memory"),
                ({"colour": "red"}, "gpus[0].colour: there is no such field"),
                ({"vendor": "acme"}, 'gpus[0].vendor: "acme" is none of nvidia, amd'),
                ({"vendor": ["amd"]}, "gpus[0].vendor: "),
                ({"mig": "yes"}, 'gpus[0].mig: "yes" is neither true nor false'),
                ({"mig": True, "parent": 1}, "gpus[0].uuid: it is missing"),
                ({"mig": True, "uuid": "MIG-1"}, "gpus[0].parent: it is missing"),
                ({"mig": True, "uuid": "MIG-1", "parent": -1}, "gpus[0].parent: -1"),
                ({"vendor": "amd"}, "gpus[0].capability: it is NVIDIA's, and vendor is amd"),
                ({"vendor": "nvidia", "capability": "gfx942"}, "gpus[0].capability: it is AMD's, and vendor is nvidia"),
                ({"mig": True, "uuid": "MIG-1", "parent": 0, "vendor": "amd"}, "gpus[0].mig: "),
                ({"parent": 1}, "gpus[0].parent: only a MIG slice has one"),
                ({"capability": "abc"}, 'gpus[0].capability: "abc" is none'),
                ({"numa_node": -1}, "gpus[0].numa_node: -1"),
                ({"numa_node": 2**31}, "gpus[0].numa_node: 2147483648"),
                ({"numa_node": "0"}, 'gpus[0].numa_node: "0"'),
                ({"numa_node": 0.0}, "gpus[0].numa_node: 0.0"),
                ({"numa_node": False}, "gpus[0].numa_node: false"),
                ({"numa_node": [0]}, "gpus[0].numa_node: [0]"),
                ({"processes": [{"pid": -7}]}, "gpus[0].processes[0].pid: -7"),
                ({"processes": [{"memory": 1}]}, "gpus[0].processes[0].pid: it is missing"),
                ({"processes": "x"}, 'gpus[0].processes: "x" is not a list'),
            )
        ),
        ({"nodes": [NODE], "gpus": [GPU, GPU]}, "GPU 0 stands in it twice"),
        (
            {"nodes": [NODE], "gpus": [GPU | {"uuid": "u"}, GPU | {"index": 1, "uuid": "u"}]},
            "uuid u stands in it twice",
        ),
        ({"nodes": [NODE], "gpus": [GPU, GPU | {"index": 1, "capability": "gfx942"}]}, "those of one maker"),
        (
            {"nodes": [NODE], "gpus": [GPU, GPU | {"index": 1, "mig": True, "uuid": "MIG-1", "parent": 0}]},
            "GPU 1 is a slice of GPU 0, which is offered as a whole",
        ),
        *(
            ({"nodes": [NODE], "gpus": [GPU, GPU | {"index": 1}], "links": links}, words)
            for links, words in (
                ([{"gpus": [0, 2], "kind": "nvlink"}], "links[0].gpus: there is no GPU 2"),
                ([{"gpus": [0], "kind": "nvlink"}], "links[0].gpus: [0] are not two GPUs"),
                ([{"gpus": [0, 0], "kind": "nvlink"}], "links[0].gpus: [0, 0] are not two GPUs"),
                ([{"gpus": [0, 1], "kind": "rope"}], 'links[0].kind: "rope" is none of nvlink'),
                (
                    [{"gpus": [0, 1], "kind": "node"}, {"gpus": [1, 0], "kind": "pcie"}],
                    "GPUs 0 and 1 stands in it twice",
                ),
            )
        ),
    ],
)
def test_a_malformed_inventory_is_the_users_mistake(text: object, words: str) -> None:
    written = text if isinstance(text, str) else json.dumps({"version": 1} | text)
    with pytest.raises(UsageError) as refused:
        read_inventory(written)
    assert words in refused.value.lines()[0]
    assert len("".join(refused.value.lines())) < 250


@pytest.mark.parametrize(
    ("text", "numbers"), [("9.0", (9, 0)), ("gfx942", (9, 4, 2)), ("gfx90a", (9, 0, 10)), ("gfx1201", (12, 0, 1))]
)
def test_capabilities(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_capability(text) == numbers
    vendor = "amd" if text.startswith("gfx") else "nvidia"
    assert format_capability(Gpu(0, "x", 1, numbers, vendor=vendor)) == text
    assert parse_capability("unknown") == ()


def test_a_gpu_mask_is_read_as_cuda_reads_it() -> None:
    gpus = tuple(Gpu(index, "x", 1, uuid=f"GPU-{index}f") for index in range(4))

    def seen(mask: str | None) -> list[int]:
        return [gpu.index for gpu in visible(gpus, mask)]

    assert seen(None) == [0, 1, 2, 3]
    assert seen("2,0") == [2, 0]
    assert seen("1,-1,2") == [1]  # CUDA stops at what it does not know
    assert seen("9") == seen("") == seen("GPU-") == seen("f") == []
    assert seen("GPU-3f, GPU-1") == [3, 1]


def test_a_mask_over_slices() -> None:
    slices = [Gpu(1 + place, "x MIG", 1, uuid=f"MIG-{place}", mig=True, parent=0) for place in range(2)]
    assert [gpu.index for gpu in visible(slices, "MIG-1")] == [2]
    assert [gpu.index for gpu in visible(slices, "0")] == [1]  # the first slice of GPU 0
    assert visible(slices, "1") == ()


class ScriptedNvml:
    """NVML of a machine with two joined GPUs and one that is cut into two slices."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_DEVICE_MIG_ENABLE, NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 1, 2, 0
    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE = 0, 10, 20
    NVML_TOPOLOGY_HOSTBRIDGE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 30, 40, 50

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return str(index)

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if handle == "0":
            raise self.NVMLError
        return [int(handle == "2"), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, place: int) -> str:
        if place == 1:
            raise self.NVMLError
        return f"{handle}.{place}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=80, free=60 if handle == "1" else 80)

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "H100" + " MIG 3g.40gb" * ("." in handle)

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return ("MIG-" if "." in handle else "GPU-") + handle

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        assert "." not in handle
        return 9, 0

    def nvmlDeviceGetMemoryAffinity(self, handle: str, size: int, scope: int) -> list[int]:
        return [0b10, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7, usedGpuMemory=20)] if handle == "1" else []

    def nvmlDeviceGetP2PStatus(self, first: str, second: str, capability: int) -> int:
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, first: str, second: str) -> int:
        return 50


def test_what_nvml_tells() -> None:
    gpus, links = read_nvml(ScriptedNvml(), None)
    assert [(gpu.index, gpu.visible_as, gpu.parent) for gpu in gpus] == [
        (0, "0", None),
        (1, "1", None),
        (2, "MIG-2.0", 2),
        (3, "MIG-2.2", 2),
    ]
    assert [gpu.memory_free for gpu in gpus] == [80, 60, 80, 80]
    assert (gpus[1].processes[0].pid, gpus[1].processes[0].memory, gpus[0].processes) == (7, 20, ())
    assert {gpu.capability for gpu in gpus} == {(9, 0)}
    assert {gpu.numa_node for gpu in gpus} == {1}
    assert [(link.first, link.second, link.kind) for link in links] == [(0, 1, "nvlink")]
    assert [gpu.index for gpu in read_nvml(ScriptedNvml(), "MIG-2.2,1")[0]] == [3, 1]


def test_the_scripted_nvml_is_like_the_real_one() -> None:
    """The same functions with as many arguments, and constants of the same value."""
    nvml = pytest.importorskip("pynvml")
    names = [name for name in vars(ScriptedNvml) if name.upper().startswith("NVML")]
    assert len(names) > 15
    for name in names:
        ours, real = getattr(ScriptedNvml, name), getattr(nvml, name)
        if name.startswith("NVML_"):
            assert ours == real, name
        elif name != "NVMLError":
            inspect.signature(real).bind(*list(inspect.signature(ours).parameters)[1:])


def test_gpus_without_nvlink() -> None:
    class Apart(ScriptedNvml):
        def nvmlDeviceGetP2PStatus(self, first: str, second: str, capability: int) -> int:
            raise self.NVMLError

    assert read_nvml(Apart(), None)[1][0].kind == "system"
    Apart.nvmlDeviceGetTopologyCommonAncestor = lambda self, first, second: 20
    assert read_nvml(Apart(), None)[1][0].kind == "pcie"


def test_what_amdsmi_tells() -> None:
    """Against its documentation: the shapes of the answers, in mebibytes and bytes as it says."""
    xgmi = SimpleNamespace(name="AMDSMI_LINK_TYPE_XGMI", value=2)
    smi = SimpleNamespace(
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        AmdSmiLinkType=(SimpleNamespace(name="AMDSMI_LINK_TYPE_PCIE", value=1), xgmi),
        amdsmi_get_processor_handles=lambda: ["a", "b"],
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": "MI300X", "target_graphics_version": "gfx942"},
        amdsmi_get_gpu_vram_usage=lambda handle: {"vram_total": 196_592, "vram_used": 592},
        amdsmi_get_gpu_device_uuid=lambda handle: f"uuid-{handle}",
        amdsmi_topo_get_numa_node_number=lambda handle: 1,
        amdsmi_get_gpu_process_list=lambda handle: [{"pid": 9, "memory_usage": {"vram_mem": 5}}],
        amdsmi_topo_get_link_type=lambda first, second: {"hops": 1, "type": 2},
    )
    gpus, links = read_amdsmi(smi, None)
    assert gpus[1].memory_free == 196_000 * 2**20
    assert (gpus[1].vendor, gpus[1].capability, gpus[1].numa_node) == ("amd", (9, 4, 2), 1)
    assert (gpus[1].processes[0].pid, gpus[1].processes[0].memory) == (9, 5)
    assert [link.kind for link in links] == ["xgmi"]
    assert [gpu.index for gpu in read_amdsmi(smi, "1")[0]] == [1]
    smi.amdsmi_topo_get_numa_node_number = lambda handle: -1
    assert read_amdsmi(smi, None)[0][0].numa_node is None


def test_a_machine_without_rocm_has_no_amd_gpus() -> None:
    assert amd_gpus({}) == ((), ())


def test_nodes_as_sysfs_lists_them(tmp_path: Path) -> None:
    for number, cores in ((1, "2-3"), (0, "0-1"), (2, "")):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        (folder / "cpulist").write_text(cores + "\n")
        (folder / "meminfo").write_text(
            f"Node {number} MemTotal:       1000 kB\nNode {number} MemFree:         300 kB\n"
            f"Node {number} Active(file):    200 kB\nNode {number} SReclaimable:    50 kB\n"
        )
    nodes = read_nodes(tmp_path, {0, 1, 2})
    assert [(node.number, node.cores) for node in nodes] == [(0, (0, 1)), (1, (2,)), (2, ())]
    assert {(node.memory, node.memory_free) for node in nodes} == {(1000 * 1024, 550 * 1024)}
    assert read_nodes(tmp_path / "none", {0}) == ()


def test_the_inventory_of_this_machine() -> None:
    inventory = take_inventory()
    assert set(inventory.cores) <= os.sched_getaffinity(0)
    assert inventory.limits or set(inventory.cores) == os.sched_getaffinity(0)
    assert 0 < inventory.memory_free <= inventory.memory
    assert read_inventory(inventory.to_json()) == inventory


def test_what_own_processes_hold_counts_as_free() -> None:
    """A GPU that others fill, but for what a killed appliance of ours left behind."""
    busy = machine("h100-4x80-busy").without({815})
    assert busy.gpus[2].memory_used == 10 * 2**30
    assert [process.pid for process in busy.gpus[2].processes] == [816]
    assert busy.gpus[0] == machine("h100-4x80-busy").gpus[0]


def test_links_are_known_both_ways() -> None:
    inventory = machine("h100-2x80")
    first, second = inventory.gpus
    assert inventory.link(first, second) == inventory.link(second, first) == "nvlink"
    assert cpu(2).gpus == ()


def test_environment_of_a_partition() -> None:
    environment = partition_environment(Partition((1, 2), (3,)), {"MALLOC_ARENA_MAX": "7", "HIP_VISIBLE_DEVICES": "1"})
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == environment["HIP_VISIBLE_DEVICES"] == "3"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "MALLOC_ARENA_MAX" not in environment
    assert int(environment["MALLOC_TOP_PAD_"]) >= 2**20
    sliced = partition_environment(Partition((0,), (2,), ("MIG-7",)), {})
    assert sliced["CUDA_VISIBLE_DEVICES"] == "MIG-7"
    assert "HIP_VISIBLE_DEVICES" not in sliced
    assert partition_environment(Partition((0,)), {})["CUDA_VISIBLE_DEVICES"] == ""
