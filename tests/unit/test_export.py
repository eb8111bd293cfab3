"""`dump_config` and `from_config`: what is kept, what is refused, and where moved caches are found."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset_rt as drt
import polars as pl
import pytest
from support import drt as subject
from support import tables, values
from support.child import run_script
from support.sources import mini, tame_rows, ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

ROWS = 30
EDIT = {"rows": [5, 5, 0, *range(ROWS - 1, 9, -1), 5], "weights": [0.5 + i % 4 for i in range(24)], "extra": True}
FILES = ["dataset.json", "drt_export.json", "metadata.arrow"]


@pytest.fixture
def cache(base: Path) -> Path:
    return subject.write(base, "a", mini(ROWS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for an export, beside the caches' base folder."""
    made = tmp_path / "export"
    made.mkdir()
    return made


def edited_dataset(cache: Path, **options: Any) -> Any:
    dataset = subject.open_dataset(cache, **{"seed": 11, "shuffle": True, **options})
    dataset.update_metadata(tables.edited(dataset.get_metadata(), EDIT))
    dataset.set_epoch_len(17)
    return dataset


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Names, times and bytes of everything in a folder."""
    return {
        str(each.relative_to(folder)): (each.lstat().st_mtime_ns, each.read_bytes() if each.is_file() else b"")
        for each in folder.rglob("*")
    }


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def as_the_public_package_leaves_it(config: Path) -> Path:
    """The same export without the file that other programs do not write."""
    (config.parent / "drt_export.json").unlink()
    return config


# ---------------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("edit", ["none", "same table", "edited"])
@pytest.mark.parametrize("epoch_len", [None, 1, 100])
def test_a_restored_dataset_draws_what_a_fresh_one_would(
    cache: Path, folder: Path, shuffle: bool, edit: str, epoch_len: int | None
) -> None:
    def fresh() -> Any:
        dataset = subject.open_dataset(cache, seed=7, shuffle=shuffle)
        if edit == "same table":
            dataset.update_metadata(dataset.get_metadata())
        elif edit == "edited":
            dataset.update_metadata(tables.edited(dataset.get_metadata(), EDIT))
        if epoch_len is not None:
            dataset.set_epoch_len(epoch_len)
        return dataset

    exported, reference = fresh(), fresh()
    next(iter(exported))  # the place in the stream is not part of an export
    restored = drt.CachedDataset.from_config(exported.dump_config(folder))
    for _ in range(3):
        wanted = [values.plain_sample(sample) for sample in reference]
        assert [values.plain_sample(sample) for sample in restored] == wanted
        assert len(wanted) == len(restored)


def test_the_table_comes_back_with_order_repeats_weights_and_columns(cache: Path, folder: Path) -> None:
    dataset = edited_dataset(cache)
    table = dataset.get_metadata()
    assert table["category"].n_chunks() == 2 and table["category"].n_unique() > 3
    again = drt.CachedDataset.from_config(dataset.dump_config(folder)).get_metadata()
    assert again.schema == table.schema
    assert again.equals(table)
    assert again["sample_id"].to_list()[:3] == [5, 5, 0]


def test_settings_come_back(cache: Path, base: Path, folder: Path) -> None:
    other = subject.write(base, "b", mini(4))
    config = drt.ReaderConfig(seed=2**64 - 1, prefetch_size=3, shuffle=False, validate_cache=True, io="pread")
    dataset = drt.DatasetRuntime(num_workers=3).cached_dataset([other, cache], reader_config=config)
    dataset.set_epoch_len(2**63 - 1)
    restored = drt.CachedDataset.from_config(dataset.dump_config(folder))
    assert restored.reader_config == config
    assert restored.cache_paths == [other, cache]
    assert len(restored) == 2**63 - 1
    assert restored._runtime.num_workers == 3


def test_narrow_id_and_weight_types_are_kept(cache: Path, folder: Path) -> None:
    dataset = subject.open_dataset(subject.write(cache.parent, "tiny", ten_rows()), shuffle=True)
    table = dataset.get_metadata().with_columns(pl.col("sample_id").cast(pl.Int32), pl.col("weight").cast(pl.UInt8))
    dataset.update_metadata(table)
    again = drt.CachedDataset.from_config(dataset.dump_config(folder)).get_metadata()
    assert again.schema == table.schema and again.equals(table)


def test_dumping_moves_no_cursor_and_restoring_leaves_the_original_alone(cache: Path, folder: Path) -> None:
    dataset, reference = edited_dataset(cache), edited_dataset(cache)
    assert subject.ids(dataset) == subject.ids(reference)
    config = dataset.dump_config(folder)
    list(drt.CachedDataset.from_config(config))
    assert subject.ids(dataset) == subject.ids(reference)


def test_an_export_of_a_restored_dataset_says_the_same(cache: Path, folder: Path, tmp_path: Path) -> None:
    first = edited_dataset(cache).dump_config(folder)
    (tmp_path / "other").mkdir()
    second = drt.CachedDataset.from_config(first).dump_config(tmp_path / "other")
    for name in FILES:
        assert (first.parent / name).read_bytes() == (second.parent / name).read_bytes(), name


def test_the_path_of_dataset_json_is_returned_absolute_and_resolved(
    cache: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    config = subject.open_dataset(cache).dump_config("link")
    assert type(config) is type(Path()) and config == folder.resolve() / "dataset.json"
    assert sorted(os.listdir(folder)) == FILES
    assert len(drt.CachedDataset.from_config("link/dataset.json")) == ROWS


def test_dataset_json_has_the_keys_of_the_public_package(cache: Path, folder: Path, golden: Path) -> None:
    ours = json.loads(edited_dataset(cache).dump_config(folder).read_text())
    theirs = json.loads((golden / "export" / "edited" / "dataset.json").read_text())
    assert list(ours) == list(theirs) and list(ours["reader_config"]) == list(theirs["reader_config"])
    assert ours == {**theirs, "cache_paths": [str(cache.resolve())], "num_workers": 2, "epoch_len": 17, "row_count": 24}


def test_relative_paths_are_stored_as_they_were_when_the_dataset_was_opened(
    cache: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cache.parent)
    dataset = subject.open_dataset(Path("a"))
    monkeypatch.chdir(tmp_path)
    config = dataset.dump_config(folder)
    assert json.loads(config.read_text())["cache_paths"] == [str(cache.resolve())]
    monkeypatch.chdir("/")
    assert len(drt.CachedDataset.from_config(config)) == ROWS


def test_unrelated_files_stay_and_files_get_ordinary_permissions(cache: Path, folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    subject.open_dataset(cache).dump_config(folder)
    assert sorted(os.listdir(folder)) == sorted([*FILES, "notes.txt"])
    umask = os.umask(0)
    os.umask(umask)
    assert {(folder / name).stat().st_mode & 0o777 for name in FILES} == {0o666 & ~umask}


def test_paths_that_are_no_text_come_back(base: Path, folder: Path) -> None:
    odd = base / os.fsdecode(b"caf\xe9 \xf0\x9f\x98\x80")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    dataset = subject.open_dataset(subject.write(odd, "a", ten_rows()))
    assert subject.ids(drt.CachedDataset.from_config(dataset.dump_config(folder))) == list(range(10))


def test_caches_without_metadata_columns_are_exported(base: Path, folder: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "bare", [(b"x", {}), (b"y", {})]))
    restored = drt.CachedDataset.from_config(dataset.dump_config(folder))
    assert [sample.data for sample in restored] == [b"x", b"y"]


def test_an_export_during_updates_is_of_one_moment(cache: Path, tmp_path: Path) -> None:
    dataset = subject.open_dataset(cache)
    stored, stop = dataset.get_metadata(), threading.Event()

    def update() -> None:
        height = 1
        while not stop.is_set():
            height = height % ROWS + 1
            dataset.update_metadata(stored.head(height))

    interval = sys.getswitchinterval()
    updating = threading.Thread(target=update)
    updating.start()
    try:
        sys.setswitchinterval(1e-6)
        for attempt in range(10):
            (tmp_path / str(attempt)).mkdir()
            config = json.loads(dataset.dump_config(tmp_path / str(attempt)).read_text())
            assert config["epoch_len"] == config["row_count"]
        for _ in range(10_000):
            contents = dataset._contents()
            assert contents.epoch_len == contents.table.height
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        updating.join()


def test_threads_that_export_into_one_folder_make_one_export(cache: Path, folder: Path) -> None:
    dataset = edited_dataset(cache)
    outcomes: list[Any] = []

    def export() -> None:
        try:
            outcomes.append(dataset.dump_config(folder))
        except drt.CacheExistsError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=export) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in outcomes].count(type(Path())) == 1 and len(outcomes) == 8
    assert sorted(os.listdir(folder)) == FILES
    assert drt.CachedDataset.from_config(folder / "dataset.json").get_metadata().equals(dataset.get_metadata())


def test_nothing_but_the_packages_own_needs_is_imported(cache: Path, folder: Path) -> None:
    script = """
sys.modules["numpy"] = sys.modules["pyarrow"] = None  # importing either now fails
import dataset_rt as drt
drt.CachedDataset.dump_config, drt.CachedDataset.from_config
loaded = "polars" in sys.modules or "pydantic" in sys.modules
from support import drt as subject, tables
dataset = subject.open_dataset(ARGS["cache"])
dataset.update_metadata(tables.edited(dataset.get_metadata(), {"rows": [3, 1, 2, 3], "extra": True}))
restored = drt.CachedDataset.from_config(dataset.dump_config(ARGS["folder"]))
report([loaded, subject.ids(restored), restored.get_metadata()["category"].to_list()])
"""
    expected = [False, [3, 1, 2, 3], ["early-0", "early-1", "late-2", "late-0"]]
    assert run_script(script, {"cache": str(cache), "folder": str(folder)}) == expected


# -------------------------------------------------------------------------------------------------- refused without a trace


@pytest.mark.parametrize("name", [*FILES, "dataset.json.partial", "metadata.arrow.partial"])
@pytest.mark.parametrize("what", ["file", "folder", "dangling link"])
def test_a_folder_with_something_in_the_way_is_refused_untouched(cache: Path, folder: Path, name: str, what: str) -> None:
    if what == "file":
        (folder / name).write_text("mine")
    elif what == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to("nowhere")
    before = listing(folder), folder.stat().st_mtime_ns
    with pytest.raises(drt.CacheExistsError) as caught:
        subject.open_dataset(cache).dump_config(folder)
    assert (listing(folder), folder.stat().st_mtime_ns) == before
    assert caught.value.kind == "export-exists" and isinstance(caught.value, FileExistsError)
    assert str(folder) in str(caught.value) and "another folder" in str(caught.value)
    assert caught.value.path == str(folder / name)


def test_a_second_export_into_a_folder_is_refused_untouched(cache: Path, folder: Path) -> None:
    dataset = edited_dataset(cache)
    dataset.dump_config(folder)
    before = listing(folder), folder.stat().st_mtime_ns
    with pytest.raises(drt.CacheExistsError, match="holds an export already"):
        dataset.dump_config(folder)
    assert (listing(folder), folder.stat().st_mtime_ns) == before


def test_a_missing_folder_is_refused_and_not_made(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(drt.CacheNotFoundError, match="create it") as caught:
        subject.open_dataset(cache).dump_config(tmp_path / "missing")
    assert caught.value.kind == "folder-not-found" and caught.value.path == str(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_a_file_as_folder_is_refused_untouched(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(drt.InvalidInputError, match="is not a folder"):
        subject.open_dataset(cache).dump_config(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("path", [None, 3, b"bytes"])
def test_paths_of_another_type_are_type_errors(cache: Path, path: Any) -> None:
    with pytest.raises(TypeError):
        subject.open_dataset(cache).dump_config(path)
    with pytest.raises(TypeError):
        drt.CachedDataset.from_config(path)


@pytest.mark.parametrize(
    ("dtype", "value"), [(pl.Object, object()), (pl.Array(pl.Int8, 0), []), (pl.List(pl.Array(pl.Int8, 0)), [[]])], ids=str
)
def test_a_column_that_arrow_files_do_not_keep_is_refused_by_name(cache: Path, folder: Path, dtype: Any, value: Any) -> None:
    dataset = subject.open_dataset(cache)
    column = pl.Series("mine", [value] * ROWS, dtype=dtype)
    dataset.update_metadata(dataset.get_metadata().with_columns(column))
    with pytest.raises(drt.InvalidInputError, match=r"'mine'.*drop or convert") as caught:
        dataset.dump_config(folder)
    assert caught.value.kind == "invalid-table"
    assert os.listdir(folder) == []


def test_a_cache_that_was_replaced_while_open_is_not_exported(cache: Path, folder: Path) -> None:
    dataset = subject.open_dataset(cache)
    shutil.rmtree(cache)
    subject.write(cache.parent, "a", mini(ROWS))
    with pytest.raises(drt.CorruptCacheError, match="open it again") as caught:
        dataset.dump_config(folder)
    assert caught.value.kind == "replaced-file" and caught.value.path == str(cache)
    assert os.listdir(folder) == []


def test_a_cache_that_was_moved_while_open_is_not_exported(cache: Path, folder: Path) -> None:
    dataset = subject.open_dataset(cache)
    cache.rename(cache.with_name("moved"))
    with pytest.raises(drt.CacheNotFoundError, match="no longer where it was opened"):
        dataset.dump_config(folder)
    assert os.listdir(folder) == []
    cache.with_name("moved").rename(cache)
    assert len(drt.CachedDataset.from_config(dataset.dump_config(folder))) == ROWS


# ------------------------------------------------------------------------------------------------------------- moved caches


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a cache and an export of it, edited."""
    project = tmp_path / "project"
    (project / "caches").mkdir(parents=True)
    (project / "exports" / "one").mkdir(parents=True)
    dataset = edited_dataset(subject.write(project / "caches", "a", mini(ROWS)))
    dataset.dump_config(project / "exports" / "one")
    return project


CONFIG = Path("exports", "one", "dataset.json")


def test_caches_and_export_moved_together_are_found(project: Path, tmp_path: Path) -> None:
    expected = subject.ids(drt.CachedDataset.from_config(project / CONFIG))
    moved = tmp_path / "elsewhere" / "deeper"
    moved.parent.mkdir()
    project.rename(moved)
    restored = drt.CachedDataset.from_config(moved / CONFIG)
    assert restored.cache_paths == [moved / "caches" / "a"]
    assert subject.ids(restored) == expected


def test_a_moved_export_finds_the_cache_where_it_stayed(project: Path, tmp_path: Path) -> None:
    (project / "exports" / "one").rename(tmp_path / "moved")
    restored = drt.CachedDataset.from_config(tmp_path / "moved" / "dataset.json")
    assert restored.cache_paths == [project / "caches" / "a"]


def test_the_absolute_path_comes_first_when_both_places_have_the_cache(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "copy")
    assert drt.CachedDataset.from_config(tmp_path / "copy" / CONFIG).cache_paths == [project / "caches" / "a"]


def test_another_cache_at_the_absolute_path_does_not_hide_the_right_one(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "copy")
    shutil.rmtree(project / "caches" / "a")
    subject.write(project / "caches", "a", mini(ROWS + 1))
    assert drt.CachedDataset.from_config(tmp_path / "copy" / CONFIG).cache_paths == [tmp_path / "copy" / "caches" / "a"]


def test_a_cache_moved_alone_is_reported_with_both_places(project: Path, tmp_path: Path) -> None:
    (project / "caches" / "a").rename(tmp_path / "a")
    moved = tmp_path / "moved"
    project.rename(moved)
    with pytest.raises(drt.CacheNotFoundError, match="symbolic link") as caught:
        drt.CachedDataset.from_config(moved / CONFIG)
    assert caught.value.kind == "cache-not-found"
    for place in (project, moved):
        assert str(place / "caches" / "a") in str(caught.value)
    (moved / "caches" / "a").symlink_to(tmp_path / "a")  # what the message advises
    assert len(drt.CachedDataset.from_config(moved / CONFIG)) == 17


def test_cache_paths_may_be_corrected_by_hand(project: Path, tmp_path: Path) -> None:
    (project / "caches" / "a").rename(tmp_path / "a")
    change(project / CONFIG, lambda config: config.update(cache_paths=[str(tmp_path / "a")]))
    assert drt.CachedDataset.from_config(project / CONFIG).cache_paths == [tmp_path / "a"]


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("a", mini(ROWS - 1), [f"{ROWS - 1} samples where {ROWS} were exported", "another index", "other metadata"]),
        ("a", [(b"other", metadata) for _, metadata in mini(ROWS)], ["another index", "other shards"]),
        ("a", [(payload, {**metadata, "cls": 9}) for payload, metadata in mini(ROWS)], ["other metadata"]),
        ("b", mini(ROWS), ["cache_id"]),
    ],
    ids=["fewer rows", "payloads", "metadata", "name"],
)
def test_a_cache_rebuilt_differently_is_refused_saying_what_differs(
    project: Path, tmp_path: Path, name: str, rows: Any, said: list[str]
) -> None:
    shutil.rmtree(project / "caches" / "a")
    subject.write(tmp_path, name, rows).rename(project / "caches" / "a")
    with pytest.raises(drt.CorruptCacheError, match="not the one that was exported") as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "cache-differs" and caught.value.path == str(project / "caches" / "a")
    assert all(text in str(caught.value) for text in said), caught.value


def test_the_same_cache_written_again_is_accepted(project: Path) -> None:
    shutil.rmtree(project / "caches" / "a")
    subject.write(project / "caches", "a", mini(ROWS))
    assert len(drt.CachedDataset.from_config(project / CONFIG)) == 17


@pytest.mark.parametrize("damage", ["no manifest", "no JSON", "another JSON"])
def test_a_folder_that_is_no_cache_is_refused(project: Path, damage: str) -> None:
    manifest = project / "caches" / "a" / "manifest.json"
    manifest.unlink()
    if damage != "no manifest":
        manifest.write_text("{" if damage == "no JSON" else "[]")
    with pytest.raises(drt.CorruptCacheError, match=r"no manifest\.json that can be read"):
        drt.CachedDataset.from_config(project / CONFIG)


def test_caches_of_format_2_are_known_by_position_also_after_migration(golden: Path, tmp_path: Path, folder: Path) -> None:
    paths = [shutil.copytree(golden / "v2" / name, tmp_path / name) for name in ("shards_none", "shards_lz4")]
    dataset = subject.open_dataset(paths)
    dataset.update_metadata(dataset.get_metadata().reverse())
    expected = subject.pairs(dataset)
    config = dataset.dump_config(folder)
    assert subject.pairs(drt.CachedDataset.from_config(config)) == expected
    for path in paths:
        shutil.copy(golden / "migrated" / path.name / "manifest.json", path / "manifest.json")
    assert subject.pairs(drt.CachedDataset.from_config(config)) == expected


# ------------------------------------------------------------------------------------------------------------------- damage


def test_a_missing_file_and_a_folder_are_told_apart(cache: Path, folder: Path) -> None:
    with pytest.raises(drt.CacheNotFoundError) as missing:
        drt.CachedDataset.from_config(folder / "dataset.json")
    assert missing.value.kind == "export-not-found"
    with pytest.raises(drt.InvalidInputError, match=r"dataset\.json"):
        drt.CachedDataset.from_config(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_refused_by_name(project: Path, name: str) -> None:
    path = project / CONFIG.parent / name
    whole = path.read_bytes()
    for length in {0, 1, 8, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(drt.CorruptCacheError) as caught:
            drt.CachedDataset.from_config(project / CONFIG)
        assert caught.value.path == str(path) and str(path) in str(caught.value)
        assert "export again" in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 6, 8, 100, 500, -8, -1])
def test_a_foreign_table_cut_short_is_refused_without_a_checksum_too(project: Path, length: int) -> None:
    path = as_the_public_package_leaves_it(project / CONFIG).with_name("metadata.arrow")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(drt.CorruptCacheError) as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "malformed-export" and caught.value.path == str(path)


def test_a_missing_table_is_refused_by_name(project: Path) -> None:
    (project / CONFIG).with_name("metadata.arrow").unlink()
    with pytest.raises(drt.CorruptCacheError, match="is missing") as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "missing-file"


def test_the_table_of_another_export_is_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    subject.open_dataset(project / "caches" / "a").dump_config(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "metadata.arrow", project / CONFIG.parent)
    with pytest.raises(drt.CorruptCacheError, match="SHA-256") as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "checksum-mismatch"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_gives_another_dataset(project: Path, name: str) -> None:
    reference = drt.CachedDataset.from_config(project / CONFIG)
    table, samples = reference.get_metadata(), subject.ids(reference)
    path = project / CONFIG.parent / name
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            restored = drt.CachedDataset.from_config(project / CONFIG)
        except drt.DatasetRTError:
            refused += 1
        else:  # white space, say, or a path whose other form finds the cache
            assert restored.get_metadata().equals(table) and subject.ids(restored) == samples
            assert restored.reader_config == reference.reader_config
    assert refused > len(whole) / 2


INVALID: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing key": (lambda c: c.pop("epoch_len"), "epoch_len is missing"),
    "missing inner key": (lambda c: c["reader_config"].pop("seed"), "reader_config.seed is missing"),
    "unknown key": (lambda c: c.update(other=1), "other is unknown"),
    "unknown inner key": (lambda c: c["reader_config"].update(io="mmap"), "reader_config.io is unknown"),
    "no caches": (lambda c: c.update(cache_paths=[]), "cache_paths"),
    "a path of another type": (lambda c: c.update(cache_paths=[1]), "cache_paths"),
    "an empty path": (lambda c: c.update(cache_paths=[""]), "cache_paths"),
    "a NUL in a path": (lambda c: c.update(cache_paths=["a\0b"]), "cache_paths"),
    "paths as text": (lambda c: c.update(cache_paths="/tmp"), "cache_paths"),
    "zero epoch": (lambda c: c.update(epoch_len=0), "epoch_len"),
    "giant epoch": (lambda c: c.update(epoch_len=2**63), "epoch_len"),
    "float epoch": (lambda c: c.update(epoch_len=5.0), "epoch_len"),
    "bool epoch": (lambda c: c.update(epoch_len=True), "epoch_len"),
    "no workers": (lambda c: c.update(num_workers=0), "num_workers"),
    "negative seed": (lambda c: c["reader_config"].update(seed=-1), "reader_config.seed"),
    "giant seed": (lambda c: c["reader_config"].update(seed=2**64), "reader_config.seed"),
    "shuffle as a number": (lambda c: c["reader_config"].update(shuffle=1), "reader_config.shuffle"),
    "another table": (lambda c: c.update(metadata_file="../metadata.arrow"), "metadata_file"),
    "reader_config as a list": (lambda c: c.update(reader_config=[]), "reader_config"),
    "more rows": (lambda c: c.update(row_count=25), "24 rows"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_configuration_that_cannot_be_is_refused_by_key(project: Path, case: str) -> None:
    edit, said = INVALID[case]
    change(as_the_public_package_leaves_it(project / CONFIG), edit)
    with pytest.raises(drt.CorruptCacheError) as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "malformed-export" and isinstance(caught.value, ValueError)
    assert said in str(caught.value) and str(project / CONFIG.parent) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "nul", '{"version": 2, "version": 2}', "[" * 100_000, "\xff"])
def test_text_that_is_no_json_object_is_refused(project: Path, text: str) -> None:
    (project / CONFIG).write_bytes(text.encode("latin-1"))
    with pytest.raises(drt.CorruptCacheError) as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "malformed-export"


@pytest.mark.parametrize(
    ("name", "key", "version"),
    [
        *[("dataset.json", "version", version) for version in (0, 1, 3, 10**6)],
        *[("drt_export.json", "drt_export_version", version) for version in (0, 2, 10**6)],
    ],
)
def test_another_version_is_refused_by_number(project: Path, name: str, key: str, version: int) -> None:
    change((project / CONFIG).with_name(name), lambda value: value.update({key: version}))
    with pytest.raises(drt.UnsupportedVersionError, match=f"version {version} ") as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "unsupported-version"


@pytest.mark.parametrize("edit", [{"epoch_len": 16}, {"num_workers": 3}, {"row_count": 23}])
def test_a_setting_that_was_changed_is_refused_by_name(project: Path, edit: dict[str, int]) -> None:
    change(project / CONFIG, lambda config: config.update(edit))
    ((key, value),) = edit.items()
    with pytest.raises(drt.CorruptCacheError, match=f"{key} is {value} there"):
        drt.CachedDataset.from_config(project / CONFIG)


def test_a_path_that_was_dropped_is_refused(base: Path, cache: Path, folder: Path) -> None:
    config = subject.open_dataset([cache, subject.write(base, "b", mini(3))]).dump_config(folder)
    change(config, lambda value: value.update(cache_paths=value["cache_paths"][:1]))
    with pytest.raises(drt.CorruptCacheError, match="it lists 1 caches"):
        drt.CachedDataset.from_config(config)


def test_rows_that_foreign_caches_no_longer_have_are_refused(project: Path) -> None:
    as_the_public_package_leaves_it(project / CONFIG)
    shutil.rmtree(project / "caches" / "a")
    subject.write(project / "caches", "a", mini(10))
    with pytest.raises(drt.InvalidInputError, match=r"does not fit the caches.*export again") as caught:
        drt.CachedDataset.from_config(project / CONFIG)
    assert caught.value.kind == "invalid-table" and caught.value.path == str(project / CONFIG.parent / "metadata.arrow")


def test_caches_of_other_columns_are_refused(project: Path) -> None:
    as_the_public_package_leaves_it(project / CONFIG)
    shutil.rmtree(project / "caches" / "a")
    subject.write(project / "caches", "a", tame_rows(ROWS))
    with pytest.raises(drt.InvalidInputError, match=r"does not fit the caches.*'label'"):
        drt.CachedDataset.from_config(project / CONFIG)


@pytest.mark.parametrize("relative", ["caches/a", "../../caches/a"])
def test_relative_paths_of_a_foreign_export_count_from_the_current_folder_and_from_the_export(
    project: Path, relative: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    config = as_the_public_package_leaves_it(project / CONFIG)
    change(config, lambda value: value.update(cache_paths=[relative]))
    assert drt.CachedDataset.from_config(config).cache_paths == [project / "caches" / "a"]


def test_paths_of_a_foreign_export_that_are_gone_are_reported_with_a_remedy(project: Path) -> None:
    config = as_the_public_package_leaves_it(project / CONFIG)
    change(config, lambda value: value.update(cache_paths=["/nowhere/a"]))
    with pytest.raises(drt.CacheNotFoundError, match=r"/nowhere/a; .*correct cache_paths") as caught:
        drt.CachedDataset.from_config(config)
    assert caught.value.path == "/nowhere/a" and str(config) in str(caught.value)
