"""How many processes and threads `auto` means."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from dataset_rt._torch import budgets

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def system(root: Path, membership: str, files: dict[str, str]) -> Path:
    """A made-up `/proc` and `/sys`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "native_cpu_budget", lambda: 4)


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {}),
        ("0::/pod/task\n", {"cpu.max": "max 100000\n", "pod/cpu.max": "150000 100000\n", "pod/task/cpu.max": "max 100000\n"}),
        ("4:memory:/x\n3:cpu,cpuacct:/job\n", {"cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}),
    ],
)
def test_limits_that_can_be_read_are_the_native_budget(
    four_cpus: None, tmp_path: Path, membership: str, files: dict[str, str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert budgets.cpu_budget(system(tmp_path, membership, files)) == 4


@pytest.mark.parametrize(
    ("membership", "name", "text"),
    [
        ("0::/pod/task\n", "pod/cpu.max", "plenty\n"),
        ("0::/pod/task\n", "cpu.max", ""),
        ("3:cpu,cpuacct:/job\n", "cpu,cpuacct/job/cpu.cfs_quota_us", "1.5\n"),
        ("3:cpu:/job/part\n", "cpu/job/cpu.cfs_period_us", "-100\n"),
    ],
)
def test_a_limit_that_cannot_be_read_warns_and_is_one_cpu(
    four_cpus: None, tmp_path: Path, membership: str, name: str, text: str
) -> None:
    with pytest.warns(UserWarning, match=Path(name).name):
        assert budgets.cpu_budget(system(tmp_path, membership, {name: text})) == 1


def test_a_folder_in_the_place_of_a_limit_warns_and_is_one_cpu(four_cpus: None, tmp_path: Path) -> None:
    root = system(tmp_path, "0::/\n", {"cpu.max/x": ""})
    with pytest.warns(UserWarning, match=r"cpu\.max"):
        assert budgets.cpu_budget(root) == 1


def test_a_system_without_control_groups_has_no_limit(four_cpus: None, tmp_path: Path) -> None:
    assert budgets.cpu_budget(tmp_path) == 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is a matter of Linux")
def test_affinity_is_a_limit() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert budgets.cpu_budget() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("cpus", "ranks", "workers", "threads"),
    [
        (1, 1, 0, 1),
        (2, 1, 1, 2),
        (3, 1, 2, 1),
        (4, 1, 3, 1),
        (8, 1, 4, 2),
        (64, 1, 4, 4),
        (8, 2, 3, 1),
        (8, 8, 0, 1),
        (2, 4, 0, 1),
    ],
)
def test_a_rank_has_its_share_less_one_processor(cpus: int, ranks: int, workers: int, threads: int) -> None:
    assert budgets.auto_workers(cpus, ranks) == workers
    assert budgets.auto_threads(cpus, ranks, workers) == threads


def test_threads_without_processes_are_up_to_four() -> None:
    assert [budgets.auto_threads(cpus, 1, 0) for cpus in (1, 2, 4, 64)] == [1, 2, 4, 4]


def test_the_launcher_says_how_many_ranks_share_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert budgets.local_ranks(6) == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert budgets.local_ranks(6) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    with pytest.warns(UserWarning, match="many"):
        assert budgets.local_ranks(6) == 6
