"""Limits of containers, read from files as the kernel writes them; and what a machine is within them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import SHAPES, cpu

from tide_cli.cli.plan_view import inventory_text
from tide_cli.errors import UsageError
from tide_cli.hardware.cgroups import Limits, limited, read_limits
from tide_cli.hardware.inventory import Inventory, NumaNode
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.wishes import Wishes

GIB = 2**30
V2 = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 {top} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    return tmp_path


def write(root: Path, mounts: str, groups: str, files: dict[str, str]) -> Limits:
    """The limits of a process whose group files have these contents."""
    (root / "self" / "mountinfo").write_text(mounts)
    (root / "self" / "cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return read_limits(root / "self", root)


def test_a_container_of_version_2(root: Path) -> None:
    """6 GiB are held, of which 3.5 are files that can go: 8 - 2.5 are left."""
    stat = (
        f"anon {2 * GIB}\nfile {4 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB // 4}\nslab_reclaimable {GIB // 4}"
    )
    files = {
        "memory.max": str(8 * GIB),
        "memory.current": str(6 * GIB),
        "memory.stat": stat,
        "cpu.max": "250000 100000",
    }
    limits = write(root, V2.format(top="/"), "0::/\n", files)
    assert limits == Limits(8 * GIB, 8 * GIB - 5 * GIB // 2, 2.5)


def test_groups_above_count_as_well(root: Path) -> None:
    """A service in a slice: the slice has less memory, the service less time."""
    files = {
        "a.slice/memory.max": str(4 * GIB),
        "a.slice/memory.current": str(GIB),
        "a.slice/cpu.max": "400000 100000",
        "a.slice/b.service/memory.max": str(6 * GIB),
        "a.slice/b.service/memory.current": str(GIB // 2),
        "a.slice/b.service/cpu.max": "150000 100000",
        "a.slice/other/memory.max": "1",
    }
    limits = write(root, V2.format(top="/"), "0::/a.slice/b.service\n", files)
    assert limits == Limits(4 * GIB, 3 * GIB, 1.5)


@pytest.mark.parametrize("group", ["/docker/0f", "/elsewhere", "/../x"])
def test_a_container_that_sees_its_own_group_mounted(root: Path, group: str) -> None:
    """Without a namespace of its own its path is the host's; what is mounted is the group itself."""
    files = {"memory/memory.limit_in_bytes": str(2 * GIB), "memory/memory.usage_in_bytes": str(GIB)}
    files |= {"memory/memory.stat": f"cache 5\ntotal_inactive_file {GIB // 2}\ntotal_active_file 0\ninactive_file 7"}
    files |= {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    limits = write(root, V1.format(top="/docker/0f"), f"4:memory:{group}\n2:cpu,cpuacct:{group}\n0::/\n", files)
    assert limits == Limits(2 * GIB, 2 * GIB - GIB // 2, 0.5)


def test_a_group_of_version_1_on_the_host(root: Path) -> None:
    files = {"memory/s/memory.limit_in_bytes": str(3 * GIB), "cpu,cpuacct/s/cpu.cfs_quota_us": "-1"}
    files |= {"cpu,cpuacct/s/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9223372036854771712"}
    limits = write(root, V1.format(top="/"), "4:memory:/s\n2:cpu,cpuacct:/s\n", files)
    assert limits == Limits(3 * GIB, 3 * GIB, None)


def test_no_limit(root: Path) -> None:
    files = {"memory.max": "max", "memory.current": "5", "cpu.max": "max 100000"}
    assert write(root, V2.format(top="/"), "0::/\n", files) == Limits()


@pytest.mark.parametrize(
    ("mounts", "groups"),
    [("", ""), ("nonsense\n", "nonsense\n"), (V2.format(top="/"), ""), ("", "0::/\n"), ("a - b\n - \n", ":\n::\n")],
)
def test_machines_without_control_groups(root: Path, mounts: str, groups: str) -> None:
    assert write(root, mounts, groups, {}) == Limits()
    assert read_limits(root / "none", root) == Limits()


def test_a_mount_point_with_a_blank(root: Path) -> None:
    (root / "c g").mkdir()
    (root / "c g" / "memory.max").write_text("7\n")
    (root / "self" / "mountinfo").write_text("1 2 0:1 / /c\\040g rw - cgroup2 none rw\n")
    (root / "self" / "cgroup").write_text("0::/\n")
    assert read_limits(root / "self", root).memory == 7


def test_a_machine_within_its_limits() -> None:
    nodes = [NumaNode(0, (0, 1, 2, 3), 16 * GIB, 12 * GIB), NumaNode(1, (4, 5, 6, 7), 8 * GIB, 8 * GIB)]
    within, words = limited(nodes, Limits(6 * GIB, 5 * GIB, 5.9))
    assert [(node.memory, node.memory_free, node.cores) for node in within] == [
        (4 * GIB, 3 * GIB, (0, 1, 2, 3)),
        (2 * GIB, 2 * GIB, (4,)),
    ]
    assert "6.0 of the machine's 24.0 GiB of memory" in words[0]
    assert "the time of 5.9 of 8 cores" in words[1]
    assert limited(nodes, Limits(99 * GIB, 99 * GIB, 8.0)) == (tuple(nodes), ())
    assert limited(nodes, Limits(cores=0.2))[0][0].cores == (0,)


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**40)), min_size=1, max_size=4), st.data())
def test_no_more_than_the_limit_and_no_more_than_there_is(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    nodes = [NumaNode(i, (i,), memory, min(memory, free)) for i, (memory, free) in enumerate(sizes)]
    some = st.one_of(st.none(), st.integers(1, 2**41))
    limits = Limits(data.draw(some), data.draw(some), data.draw(st.one_of(st.none(), st.floats(0.1, 9))))
    within = Inventory(limited(nodes, limits)[0])
    there = Inventory(tuple(nodes))
    assert within.memory <= min(there.memory, limits.memory or there.memory)
    assert within.memory_free <= min(there.memory_free, limits.memory_free or there.memory_free)
    assert all(0 <= node.memory_free <= node.memory for node in within.nodes)
    assert 1 <= len(within.cores) <= max(1, limits.cores or len(nodes))
    assert set(within.cores) <= set(there.cores)


def test_a_plan_knows_and_says_it() -> None:
    """24 GiB, of which a container has 8: qwen3-8b does not fit, and SmolLM2 does, on two cores."""
    nodes, words = limited(cpu(8, gib=24).nodes, Limits(8 * GIB, 7 * GIB, 2.0))
    inventory = Inventory(nodes, limits=words)
    made = make_plan(inventory, SHAPES["smollm2-135m"], Wishes())
    assert (made.serve.cores, made.train.cores) == ((0,), (1,))
    assert (made.memory[0].total, made.memory[0].used) == (8 * GIB, GIB)
    assert set(words) <= set(made.notes)
    assert all(word in inventory_text(inventory) for word in words)
    with pytest.raises(UsageError) as refused:
        make_plan(inventory, SHAPES["qwen3-8b"], Wishes())
    assert "free are 7.0" in str(refused.value.why)
