"""What `to_torch_dataloader` accepts, and what `auto` and None become. No torch is needed to find out."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
from dataset_rt import CacheNotFoundError, InvalidInputError
from dataset_rt._torch import budgets
from dataset_rt._torch.options import HANDLED, resolve

pytestmark = [pytest.mark.quick, pytest.mark.ours]

DEFAULTS: dict[str, Any] = {
    "batch_size": 1, "sample_transform_fn": None, "collate_fn": None, "shuffle": True, "order": None, "seed": "random",
    "samples_per_epoch": None, "worker_partition": None, "work_dir": None, "num_workers": "auto", "drop_last": False,
    "pin_memory": False, "timeout": 0, "native_num_workers": "auto", "multiprocessing_context": "spawn", "worker_init_fn": None,
    "prefetch_factor": "auto", "persistent_workers": "auto", "verbose": True, "dataloader_kwargs": None,
}  # fmt: skip


def asked(**changed: Any) -> Any:
    return resolve(**{"epoch_len": 100, "world_size": 1, **DEFAULTS, **changed})


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "native_cpu_budget", lambda: 2)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("batch_size", value) for value in (True, 2.0, 0, -1, None, "2", sys.maxsize + 1)],
        *[("shuffle", value) for value in (1, 0, None, "yes")],
        *[("drop_last", value) for value in (1, None)],
        *[("pin_memory", value) for value in (1, None)],
        *[("verbose", value) for value in (1, None)],
        *[("seed", value) for value in (True, None, 1.0, "chance", -1, 2**64)],
        *[("samples_per_epoch", value) for value in (True, 0, -5, 1.0, "all", 2**53 + 1)],
        *[("worker_partition", value) for value in ("stream!", 1, True, "SPLIT")],
        *[("order", value) for value in ("random", 1, True, "WEIGHTED")],
        *[("num_workers", value) for value in (None, True, -1, 1.0, "all")],
        *[("native_num_workers", value) for value in (None, True, 0, -1, 2.0, "all")],
        *[("multiprocessing_context", value) for value in (None, "thread", 1)],
        *[("prefetch_factor", value) for value in (None, True, 0, 2.0, "all")],
        *[("persistent_workers", value) for value in (None, 1, "yes")],
        *[("timeout", value) for value in (True, "1", -1, float("nan"), float("inf"), None)],
        *[("sample_transform_fn", value) for value in (1, "f")],
        *[("collate_fn", value) for value in (1, "f")],
        *[("worker_init_fn", value) for value in (1, "f")],
        *[("dataloader_kwargs", value) for value in (1, [("a", 1)])],
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name) as caught:
        asked(num_workers=1, **{name: value}) if name != "num_workers" else asked(num_workers=value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"shuffle": False, "seed": 3}, "seed"),
        ({"num_workers": 0, "timeout": 1}, "timeout"),
        ({"num_workers": 0, "prefetch_factor": 2}, "prefetch_factor"),
        ({"num_workers": 0, "persistent_workers": True}, "persistent_workers"),
        ({"epoch_len": 2**53 + 1}, "samples_per_epoch"),
    ],
)
def test_a_combination_that_cannot_be_is_refused_by_name(changed: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        asked(**changed)


@pytest.mark.parametrize("name", sorted(HANDLED))
def test_options_that_the_loader_handles_cannot_be_given_twice(name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        asked(dataloader_kwargs={name: 1})


def test_what_auto_means_on_two_processors() -> None:
    options = asked()
    assert (options.num_workers, options.native_num_workers) == (1, 2)
    assert (options.persistent_workers, options.prefetch_factor, options.start_method) == (True, 2, "spawn")


def test_what_auto_means_without_processes() -> None:
    options = asked(num_workers=0)
    assert (options.num_workers, options.native_num_workers) == (0, 2)
    assert (options.persistent_workers, options.prefetch_factor, options.start_method) == (False, None, None)


def test_ranks_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "native_cpu_budget", lambda: 16)
    assert asked(world_size=4).num_workers == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert (asked(world_size=4).num_workers, asked(world_size=4).native_num_workers) == (4, 2)


def test_fixed_counts_look_at_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "cpu_budget", lambda: pytest.fail("the limits were looked at"))
    assert asked(num_workers=3, native_num_workers=5).num_workers == 3


def test_the_division_of_rows_follows_the_order() -> None:
    assert asked().worker_partition == "replicate"
    assert asked(shuffle=False).worker_partition == "split"
    assert asked(order="permutation").worker_partition == "stream"
    assert asked(worker_partition="split").worker_partition == "split"


def test_the_number_of_samples_is_the_length_unless_given() -> None:
    assert (asked().samples, asked().samples_given) == (100, False)
    assert (asked(samples_per_epoch=7).samples, asked(samples_per_epoch=7).samples_given) == (7, True)
    assert asked(samples_per_epoch=2**53).samples == 2**53


def test_a_random_seed_is_chosen_later_and_another_one_is_kept() -> None:
    assert asked().seed is None
    assert [asked(seed=seed).seed for seed in (0, 2**64 - 1)] == [0, 2**64 - 1]


def test_start_methods() -> None:
    spawn = multiprocessing.get_context("spawn")
    assert asked(multiprocessing_context=spawn).start_method is spawn
    assert asked(multiprocessing_context=spawn, num_workers=0).start_method is None
    assert asked(multiprocessing_context="inherit").start_method is None
    assert asked(multiprocessing_context="forkserver").start_method == "forkserver"


@pytest.mark.parametrize("name", ["sample_transform_fn", "collate_fn", "worker_init_fn"])
def test_a_function_that_cannot_be_pickled_is_a_type_error_that_says_what_to_do(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} cannot be handed .* num_workers=0"):
        asked(num_workers=2, **{name: lambda value: value})
    assert callable(getattr(asked(num_workers=0, **{name: lambda value: value}), name))


def test_forked_processes_need_no_pickle_of_collate_functions() -> None:
    assert asked(num_workers=2, multiprocessing_context="fork", collate_fn=lambda batch: batch).num_workers == 2
    with pytest.raises(TypeError, match="sample_transform_fn"):
        asked(num_workers=2, multiprocessing_context="fork", sample_transform_fn=lambda sample: sample)


def test_the_work_folder_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert asked(work_dir=str(tmp_path)).work_dir == tmp_path
    with pytest.raises(CacheNotFoundError, match="work_dir"):
        asked(work_dir=tmp_path / "absent")
    with pytest.raises(InvalidInputError, match="work_dir"):
        asked(work_dir=tmp_path / "file")
    for value in (3, b"/tmp", True):
        with pytest.raises(InvalidInputError, match="work_dir must be"):
            asked(work_dir=value)
