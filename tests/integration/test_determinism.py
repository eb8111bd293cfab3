"""Threads, read-ahead, processes and hash seeds decide nothing: not the bytes, not the order."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import drt as subject
from support import sources, values
from support.child import run_script

pytestmark = pytest.mark.quick


def tree_digest(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_every_file_is_the_same_for_any_number_of_workers(base: Path, algo: str) -> None:
    rows = sources.random_rows(1200, 5)
    seen = []
    for num_workers in (1, 2, 8):
        for prefetch_size in (1, 64):
            path = subject.write(
                base / f"{num_workers}-{prefetch_size}", "a", rows, algo=algo, max_shard_bytes=9000,
                num_workers=num_workers, prefetch_size=prefetch_size,
            )  # fmt: skip
            seen.append(tree_digest(path))
    assert len(seen[0]) > 20
    assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_every_file_is_the_same_alone_or_among_other_sources(base: Path, algo: str) -> None:
    def made(name: str) -> Any:
        return sources.ListSource(name, sources.random_rows(300, 6))

    alone = subject.write_results(base / "1", made("x"), algo=algo, max_shard_bytes=9000)
    among = subject.write_results(base / "2", [made("y"), made("x"), made("z")], algo=algo, max_shard_bytes=9000)
    assert tree_digest(alone[0].path) == tree_digest(among[1].path)


def test_every_file_is_the_same_in_another_process_with_another_hash_seed(base: Path) -> None:
    script = """
import hashlib
from pathlib import Path
from support import drt, sources
path = drt.write(Path(ARGS["base"]), "a", sources.all_kinds(300), algo="lz4", max_shard_bytes=4000)
files = [file for file in sorted(path.rglob("*")) if file.is_file()]
report({str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
"""
    seen = [run_script(script, {"base": str(base / seed)}, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    assert seen[0] == seen[1] and len(seen[0]) > 4


@pytest.mark.parametrize("algo", ["none", "lz4"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_one_sequence_for_any_workers_and_prefetch_and_io(base: Path, shuffle: bool, algo: str) -> None:
    path = subject.write(base, "mini", sources.mini(300), algo=algo, max_shard_bytes=2000)
    seen = set()
    for num_workers in (1, 2, 8):
        for prefetch in (1, 4, 64):
            for io in subject.IO_MODES:
                dataset = subject.open_dataset(path, num_workers=num_workers, seed=3, shuffle=shuffle, prefetch=prefetch, io=io)
                dataset.set_epoch_len(700)
                seen.add(values.digest(dataset))
    assert len(seen) == 1


SEQUENCES = """
import locale
from pathlib import Path
import polars as pl
from support import drt
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass  # this machine does not have it
seen = []
for shuffle in (False, True):
    dataset = drt.open_dataset(Path(ARGS["path"]), seed=7, shuffle=shuffle)
    table = dataset.get_metadata()
    for weights in (pl.lit(1.0), 1 / (1.5 + pl.col("i"))):
        dataset.update_metadata(table.with_columns(weight=weights))
        dataset.set_epoch_len(500)
        seen.append(drt.ids(dataset))
report(seen)
"""


def test_one_sequence_in_any_process_place_locale_and_working_folder(base: Path) -> None:
    path = subject.write(base, "mini", sources.mini(100))
    moved = base / "moved"
    shutil.copytree(path, moved)
    surroundings: list[dict[str, Any]] = [
        {"env": {"PYTHONHASHSEED": "1", "LC_ALL": "C"}},
        {"env": {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}, "cwd": base},
    ]
    seen = [
        run_script(SEQUENCES, {"path": str(where)}, env={**os.environ, **around["env"]}, cwd=around.get("cwd"))
        for where, around in zip((path, moved), surroundings, strict=True)
    ]
    assert seen[0] == seen[1]
    assert len({str(sequence) for sequence in seen[0]}) == 3  # in table order, weights change nothing
    here = subject.open_dataset(path, seed=7, shuffle=True)
    here.set_epoch_len(500)
    assert seen[0][2] == subject.ids(here)


def test_shuffled_order_does_not_depend_on_compression_or_shards(base: Path) -> None:
    rows = sources.mini(100)
    seen = []
    for number, options in enumerate([{}, {"algo": "lz4"}, {"max_shard_bytes": 300}]):
        dataset = subject.open_dataset(subject.write(base / str(number), "a", rows, **options), shuffle=True, seed=2)
        dataset.set_epoch_len(300)
        seen.append(subject.ids(dataset))
    assert seen[0] == seen[1] == seen[2]


def test_the_weighted_order_depends_on_weights_and_seed_alone(base: Path) -> None:
    """Extra columns, chunks and the order of columns are not part of the plan."""
    import polars as pl

    path = subject.write(base, "a", sources.mini(50))
    seen = set()
    for arrange in (
        lambda t: t,
        lambda t: t.with_columns(pl.lit("x").alias("extra")),
        lambda t: t.select(reversed(t.columns)),
        lambda t: pl.concat([t[:7], t[7:]], rechunk=False),
        lambda t: t.with_columns(pl.col("weight").cast(pl.Int32)),
    ):
        dataset = subject.open_dataset(path, shuffle=True, seed=4)
        table = dataset.get_metadata().with_columns((pl.col("i") % 5 + 1).cast(pl.Float64).alias("weight"))
        dataset.update_metadata(arrange(table))
        dataset.set_epoch_len(300)
        seen.add(tuple(subject.ids(dataset)))
    assert len(seen) == 1
