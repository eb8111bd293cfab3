"""Loaders of several training processes, in a real process group."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import drt_plan
from support import drt, loading, sources
from support.child import run_program

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif(sys.platform != "linux" or not torch.distributed.is_available(), reason="needs fork and a gloo group"),
]

RANKS = """
import json, pathlib, sys, warnings
import torch
import torch.distributed as dist
from support import drt, loading

path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
UNLIKE = {
    "seeds": [{"order": "permutation", "seed": 1 + rank} for rank in range(2)],
    "batch_size": [{"shuffle": False, "batch_size": 8 + rank} for rank in range(2)],
    "drop_last": [{"shuffle": False, "drop_last": bool(rank)} for rank in range(2)],
    "orders": [{"shuffle": bool(rank), "worker_partition": "split"} for rank in range(2)],
    "worker_partition": [{"worker_partition": ("split", "stream")[rank], "seed": 1} for rank in range(2)],
    "numbers of samples": [{"samples_per_epoch": 8 + rank} for rank in range(2)],
    "nothing": [{"seed": 1 + rank} for rank in range(2)],
}

def train(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    said = {}
    dataset = drt.open_dataset(path)
    options = {"batch_size": 8, "num_workers": 2, "multiprocessing_context": "fork", "verbose": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = dataset.to_torch_dataloader(shuffle=False, collate_fn=loading.numbers, **options)
    said["warnings"] = len([each for each in caught if "1002" in str(each.message)])
    said["length"], said["passes"] = len(batches), []
    for _ in range(3):
        said["passes"].append(list(batches))
        dist.barrier()

    shuffled = [dataset.to_torch_dataloader(seed="random", collate_fn=loading.numbers, batch_size=8, worker_partition="split",
                                            num_workers=0, verbose=False) for _ in range(2)]
    said["seeds"] = [one.dataset.edition.topology.seed for one in shuffled]
    said["split"] = loading.flat(shuffled[0])

    table = dataset.get_metadata()
    dataset.update_metadata(table[:20])
    batches.refresh(dataset)
    said["refreshed"], said["refreshed_length"] = list(batches), len(batches)

    dataset.update_metadata(table[: 10 + rank])
    try:
        batches.refresh(dataset)
    except ValueError as error:
        said["refused"] = str(error)
    said["after"] = list(batches)
    try:
        dataset.to_torch_dataloader(seed=1, batch_size=8, num_workers=0, verbose=False)
    except ValueError as error:
        said["refused_at_first"] = str(error)
    dataset.update_metadata(table)
    said["unlike"] = {}
    for name, unlike in UNLIKE.items():
        try:
            dataset.to_torch_dataloader(**{"num_workers": 0, "verbose": False, **unlike[rank]})
            said["unlike"][name] = ""
        except ValueError as error:
            said["unlike"][name] = str(error)
    dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, nprocs=2, start_method="fork")
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks say about their loaders over 1001 rows."""
    folder = tmp_path_factory.mktemp("ranks")
    path = drt.write(folder / "caches", "mini", sources.mini(1001))
    done = run_program(folder / "program.py", RANKS, str(path), str(folder))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_ranks_see_equal_numbers_of_batches_in_each_pass(ranks: list[dict[str, Any]]) -> None:
    assert [rank["length"] for rank in ranks] == [63, 63]
    assert [[len(each) for each in rank["passes"]] for rank in ranks] == [[63] * 3] * 2


def test_a_pass_of_all_ranks_is_the_table_and_its_padding(ranks: list[dict[str, Any]]) -> None:
    for number in range(3):
        drawn = [sorted(value for batch in rank["passes"][number] for value in batch) for rank in ranks]
        assert drawn == [list(range(501)), [0, *range(501, 1001)]]


def test_padding_is_told_by_the_first_rank_alone(ranks: list[dict[str, Any]]) -> None:
    assert [rank["warnings"] for rank in ranks] == [1, 0]


def test_random_seeds_are_agreed_upon(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["seeds"] == ranks[1]["seeds"]
    assert len(set(ranks[0]["seeds"])) == 2


def test_a_shuffled_split_gives_ranks_different_rows(ranks: list[dict[str, Any]]) -> None:
    assert set(ranks[0]["split"]).isdisjoint(ranks[1]["split"])


def test_refreshing_reaches_all_ranks(ranks: list[dict[str, Any]]) -> None:
    assert [rank["refreshed_length"] for rank in ranks] == [2, 2]
    assert [sorted(value for batch in rank["refreshed"] for value in batch) for rank in ranks] == [
        list(range(10)),
        list(range(10, 20)),
    ]


def test_different_tables_are_refused_on_every_rank_and_the_old_one_stays(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "different tables" in rank["refused"]
        assert sorted(map(tuple, rank["after"])) == sorted(map(tuple, rank["refreshed"]))


def test_different_tables_are_refused_when_loaders_are_made(ranks: list[dict[str, Any]]) -> None:
    assert all("different tables" in rank["refused_at_first"] for rank in ranks)


def test_ranks_that_would_divide_samples_unlike_are_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        told = rank["unlike"]
        assert told.pop("nothing") == ""  # seeds of their own are fine where each consumer has one anyway
        assert len(told) == 6
        for name, words in told.items():
            assert f"different {name} (" in words and "on rank 0" in words and "on rank 1" in words
            assert "tables" not in words


TURNS = """
import itertools, json, pathlib, sys, warnings
import torch
import torch.distributed as dist
from support import drt, loading

path, folder, arguments = sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
ranks, workers, batch_size = arguments["topology"]

def train(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=ranks)
    said = {"batches": []}
    loaders = []
    for order in ("weighted", "permutation"):
        loaders.append(loading.loader(drt.open_dataset(path), order=order, shuffle=True, seed=7, worker_partition="stream",
                                      batch_size=batch_size, num_workers=workers, multiprocessing_context="fork"))
    for batches in loaders:
        if arguments["state"]:
            batches.load_state_dict(arguments["state"][batches.dataset.edition.topology.order])
        taken = itertools.islice(itertools.chain.from_iterable(itertools.repeat(batches)), arguments["steps"])
        said["batches"].append(list(taken))
        dist.barrier()
    said["states"] = {batches.dataset.edition.topology.order: batches.state_dict() for batches in loaders}
    (folder / f"rank{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, nprocs=ranks, start_method="fork")
"""


def turns(
    folder: Path, path: Path, topology: tuple[int, int, int], steps: int, state: Any = None
) -> tuple[list[list[list[int]]], Any]:
    """The first global batches of two loaders, of some ranks with some processes each and a batch size; and the states behind."""
    folder.mkdir()
    arguments = json.dumps({"topology": topology, "steps": steps, "state": state})
    done = run_program(folder / "program.py", TURNS, str(path), str(folder), arguments)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(topology[0])]
    assert all(rank["states"] == ranks[0]["states"] for rank in ranks)
    found = []
    for batches in zip(*(rank["batches"] for rank in ranks), strict=True):
        found.append([[number for part in step for number in part] for step in zip(*batches, strict=True)])
    return found, ranks[0]["states"]


def test_one_stream_goes_on_with_other_ranks_and_processes(tmp_path: Path) -> None:
    """The same global batches on any ranks and processes, drawn by weight too."""
    path = drt.write(tmp_path / "caches", "mini", sources.mini(960))
    first, states = turns(tmp_path / "two", path, (2, 2, 8), 20)
    assert states["permutation"]["delivered"] == 20
    then, states = turns(tmp_path / "four", path, (4, 1, 4), 45, states)
    rules = {
        "weighted": lambda at: drt_plan.multinomial(960, None, 7, at),
        "permutation": lambda at: drt_plan.permutation(960, 7, at),
    }
    for (order, rule), begun, more in zip(rules.items(), first, then, strict=True):
        options = {"order": order, "shuffle": True, "seed": 7, "worker_partition": "stream", "batch_size": 16}
        last = loading.forked(drt.open_dataset(path), **options)
        last.load_state_dict(states[order])
        batches = [*begun, *more, *last]
        assert len(batches) == 120
        drawn = list(itertools.chain(*batches))
        assert drawn == [rule(at) for at in range(1920)]
        if order == "permutation":
            assert sorted(drawn[:960]) == sorted(drawn[960:]) == list(range(960))
    loading.end_processes()
