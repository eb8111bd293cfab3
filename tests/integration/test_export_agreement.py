"""The public package reads our exports, and we read those it writes: settings, table, and (in table order) samples.

Shuffled draws differ between the two libraries, so of those only the settings and the table are compared.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import tables, values
from support.sources import tame_rows

pytestmark = pytest.mark.ours

ROWS = 40
EDITS: dict[str, dict[str, Any]] = {
    "untouched": {},
    "edited": {"rows": [9, 9, *range(ROWS - 1, 5, -1), 0], "weights": [0.25 * (1 + i % 5) for i in range(37)], "extra": True},
}


@pytest.fixture
def caches(base: Path) -> list[Path]:
    """Two caches, so that a table has several chunks."""
    return [subject.write(base, name, tame_rows(ROWS // 2, seed)) for seed, name in enumerate("ab")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "export"
    made.mkdir()
    return made


def our_dataset(caches: list[Path], edit: dict[str, Any], *, shuffle: bool) -> Any:
    dataset = subject.open_dataset(caches, seed=5, shuffle=shuffle)
    if edit:
        dataset.update_metadata(tables.edited(dataset.get_metadata(), edit))
    dataset.set_epoch_len(50)
    return dataset


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_the_public_package_reads_our_exports(oracle: Any, caches: list[Path], folder: Path, edit: str, shuffle: bool) -> None:
    dataset = our_dataset(caches, EDITS[edit], shuffle=shuffle)
    restored = oracle("restore", config=str(dataset.dump_config(folder)))
    assert (restored["paths"], restored["seed"], restored["shuffle"]) == ([str(path) for path in caches], 5, shuffle)
    assert restored["table"] == values.plain_table(dataset.get_metadata())
    assert len(restored["samples"]) == 50
    if not shuffle:
        assert restored["samples"] == [values.plain_sample(sample) for sample in dataset]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_we_read_the_exports_of_the_public_package(
    oracle: Any, caches: list[Path], folder: Path, edit: str, shuffle: bool
) -> None:
    table_edit = dict(EDITS[edit])
    if table_edit:
        table_edit["rows"] = table_edit["rows"][:-1]
        table_edit["weights"] = table_edit["weights"][:-1]
        table_edit["extra"] = "plain"  # its writer fails on categories with several dictionaries
    request = {"paths": [str(path) for path in caches], "seed": 5, "shuffle": shuffle, "count": 50, "edit": table_edit}
    config = Path(oracle("dump", folder=str(folder), **request))
    theirs = oracle("restore", config=str(config))
    ours = drt.CachedDataset.from_config(config)
    assert ours.cache_paths == caches and len(ours) == 50
    assert (ours.reader_config.seed, ours.reader_config.shuffle, ours.reader_config.io) == (5, shuffle, "mmap")
    assert values.plain_table(ours.get_metadata()) == theirs["table"]
    samples = [values.plain_sample(sample) for sample in ours]
    reference = our_dataset(caches, table_edit, shuffle=shuffle)
    assert samples == [values.plain_sample(sample) for sample in reference]
    if not shuffle:
        assert samples == theirs["samples"]


def test_the_public_package_refuses_other_keys_in_dataset_json(oracle: Any, caches: list[Path], folder: Path) -> None:
    """Why what we add stands in a file of its own."""
    config = subject.open_dataset(caches).dump_config(folder)
    assert "ok" in oracle.ask("restore", config=str(config))
    config.write_text(json.dumps({**json.loads(config.read_text()), "drt_export_version": 1}))
    answer = oracle.ask("restore", config=str(config))
    assert answer["error"]["type"] == "ValidationError" and "drt_export_version" in answer["error"]["message"]


def test_neither_package_exports_into_the_folder_of_the_other(oracle: Any, caches: list[Path], folder: Path) -> None:
    dataset = subject.open_dataset(caches)
    dataset.dump_config(folder)
    assert oracle.ask("dump", paths=[str(caches[0])], folder=str(folder))["error"]["type"] == "FileExistsError"
    for name in ("dataset.json", "drt_export.json", "metadata.arrow"):
        (folder / name).unlink()
    oracle("dump", paths=[str(caches[0])], folder=str(folder))
    with pytest.raises(drt.CacheExistsError):
        dataset.dump_config(folder)


@pytest.mark.parametrize(("name", "length"), [("default", 40), ("edited", 9)])
def test_golden_exports_of_the_public_package_are_read(golden: Path, tmp_path: Path, name: str, length: int) -> None:
    folder = shutil.copytree(golden / "export" / name, tmp_path / name)
    config = folder / "dataset.json"
    config.write_text(config.read_text().replace("FIXTURES", str(golden)))
    restored = drt.CachedDataset.from_config(config)
    assert len(restored) == length and restored.cache_paths == [golden / "v3" / "shards_none"]
    table = restored.get_metadata()
    assert table.height == json.loads(config.read_text())["row_count"]
    reference = subject.open_dataset(golden / "v3" / "shards_none", seed=11, shuffle=True)
    if name == "default":
        assert table.equals(reference.get_metadata())
    reference.update_metadata(table)
    reference.set_epoch_len(length)
    assert subject.pairs(restored) == subject.pairs(reference)


@pytest.mark.parametrize("name", ["default", "edited"])
def test_a_golden_export_whose_caches_are_elsewhere_is_refused_with_a_remedy(golden: Path, name: str) -> None:
    with pytest.raises(drt.CacheNotFoundError, match=r"FIXTURES/v3/shards_none.*correct cache_paths") as caught:
        drt.CachedDataset.from_config(golden / "export" / name / "dataset.json")
    assert caught.value.kind == "cache-not-found"
