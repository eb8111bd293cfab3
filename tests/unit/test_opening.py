"""Opening caches: what counts as a list of paths, what is refused, and reuse of finished caches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.sources import CountingSource, ListSource, mini, ten_rows

pytestmark = pytest.mark.quick


# ------------------------------------------------------------------------------------------------------ cached_dataset


@pytest.mark.parametrize("wrap", [list, tuple, iter, lambda paths: (path for path in paths), lambda paths: map(str, paths)])
def test_any_iterable_of_paths_opens(base: Path, wrap: Any) -> None:
    paths = [subject.write(base, name, ten_rows(2)) for name in ("b", "a")]
    dataset = subject.runtime().cached_dataset(wrap(paths), reader_config=subject.reader_config())
    assert dataset.cache_paths == paths
    assert subject.ids(dataset) == [0, 1, 0, 1]


def test_samples_follow_the_order_of_paths(base: Path) -> None:
    paths = [subject.write(base, name, [(name.encode(), {"i": 0})]) for name in ("c", "a", "b")]
    assert [sample.data for sample in subject.open_dataset(paths)] == [b"c", b"a", b"b"]
    assert [sample.data for sample in subject.open_dataset(paths[::-1])] == [b"b", b"a", b"c"]


@pytest.mark.ours
def test_one_bare_text_is_not_taken_for_a_list_of_letters(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(2))
    try:
        dataset = subject.runtime().cached_dataset(str(path), reader_config=subject.reader_config())
    except (TypeError, ValueError) as error:
        assert "list" in str(error).lower()
    else:
        assert subject.ids(dataset) == [0, 1]


def test_no_paths_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        subject.open_dataset([])


def test_a_cache_moves_and_is_renamed_freely(base: Path, tmp_path: Path) -> None:
    path = subject.write(base, "a", mini(20))
    before = subject.pairs(subject.open_dataset(path))
    moved = tmp_path / "elsewhere" / "another name"
    shutil.copytree(path, moved)
    shutil.rmtree(path)
    assert subject.pairs(subject.open_dataset(moved)) == before


def test_a_cache_opens_through_symbolic_links(base: Path, tmp_path: Path) -> None:
    subject.write(base, "a", ten_rows(2))
    (tmp_path / "link").symlink_to(base)
    (tmp_path / "direct").symlink_to(base / "a")
    for path in (tmp_path / "link" / "a", tmp_path / "direct"):
        assert subject.ids(subject.open_dataset(path)) == [0, 1]


@pytest.mark.parametrize("validate", [False, True])
def test_unknown_files_and_manifest_keys_are_ignored(base: Path, validate: bool) -> None:
    path = subject.write(base, "a", ten_rows(2))
    (path / "notes.txt").write_text("mine")
    (path / "shards" / "999999.bin").write_bytes(b"stray")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest = {"future": {"nested": [1, None]}, **manifest}
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert subject.ids(subject.open_dataset(path, validate=validate)) == [0, 1]


def test_a_missing_folder_is_said_to_be_missing(base: Path) -> None:
    with pytest.raises((ValueError, OSError)) as caught:
        subject.open_dataset(base / "nowhere")
    if subject.IS_OURS:
        assert isinstance(caught.value, FileNotFoundError)
        assert str(base / "nowhere") in str(caught.value)
        assert "manifest" not in str(caught.value).replace(str(base), "")


def test_a_folder_without_manifest_is_a_value_error(base: Path) -> None:
    (base / "empty").mkdir()
    with pytest.raises(ValueError) as caught:
        subject.open_dataset(base / "empty")
    assert "manifest" in str(caught.value).replace(str(base), "")


def test_a_file_is_no_cache(base: Path) -> None:
    (base / "file").write_bytes(b"x")
    with pytest.raises((ValueError, RuntimeError)):
        subject.open_dataset(base / "file")


def test_the_base_folder_itself_is_no_cache(base: Path) -> None:
    subject.write(base, "a", ten_rows(2))
    with pytest.raises(ValueError):
        subject.open_dataset(base)


def test_one_identity_cannot_be_opened_twice(base: Path, tmp_path: Path) -> None:
    path = subject.write(base, "a", ten_rows(2))
    other = subject.write(tmp_path / "other", "a", mini(2))
    copied = tmp_path / "copy"
    shutil.copytree(path, copied)
    for pair in ([path, path], [path, copied]):
        with pytest.raises(ValueError) as caught:
            subject.open_dataset(pair)
        if subject.IS_OURS:
            assert all(str(each) in str(caught.value) for each in pair)
    with pytest.raises(ValueError):
        subject.open_dataset([path, other])


def test_caches_with_other_columns_cannot_be_opened_together(base: Path) -> None:
    first = subject.write(base, "a", [(b"", {"i": 1, "s": "x"})])
    for name, metadata in {"name": {"j": 1, "s": "x"}, "kind": {"i": 1.0, "s": "x"}, "fewer": {"i": 1}}.items():
        other = subject.write(base, name, [(b"", metadata)])
        with pytest.raises(ValueError) as caught:
            subject.open_dataset([first, other])
        if subject.IS_OURS:
            assert str(other) in str(caught.value)


def test_opening_needs_a_configuration() -> None:
    with pytest.raises(TypeError):
        subject.runtime().cached_dataset(["x"])


@pytest.mark.ours
def test_an_open_dataset_does_not_depend_on_the_current_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject.write(base, "a", mini(50), max_shard_bytes=200)
    monkeypatch.chdir(base)
    for io in subject.IO_MODES:
        monkeypatch.chdir(base)
        dataset = subject.open_dataset(["a"], io=io)  # type: ignore[list-item]
        assert dataset.cache_paths == [Path("a")]
        monkeypatch.chdir("/")
        assert subject.ids(dataset) == list(range(50))
        assert dataset.get_metadata().height == 50


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_cache_rebuilt_at_its_place_gives_the_new_rows(base: Path, io: str) -> None:
    """Same runtime, same path, same lengths: the old files must not answer."""
    runtime = subject.runtime()
    config = subject.writer_config()
    for generation in range(4):
        rows = [(b"generation %d row %d" % (generation, i), {"g": generation}) for i in range(10)]
        (result,) = runtime.write_cache(ListSource("a", rows), base, writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess)
        dataset = runtime.cached_dataset([base / "a"], reader_config=subject.reader_config(io=io, validate=True))
        assert [(sample.data, sample.metadata) for sample in dataset] == rows
        assert dataset.get_metadata()["g"].to_list() == [generation] * 10
        assert dataset.get_item(next(iter(dataset)).cache_id, 3).data == rows[3][0]
        shutil.rmtree(base / "a")


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
def test_an_open_dataset_survives_the_removal_of_its_cache(base: Path, io: str) -> None:
    path = subject.write(base, "a", mini(60), max_shard_bytes=300)
    dataset = subject.open_dataset(path, io=io)
    shutil.rmtree(path)
    try:
        samples = list(dataset)
    except drt.DatasetRTError:
        return  # saying so is as good as reading on; other rows or a crash are not
    assert [(sample.data, sample.metadata) for sample in samples] == mini(60)


# ------------------------------------------------------------------------------------------------- from_cache_sources


def from_sources(base: Path, sources: Any, *, shuffle: bool = False, **options: Any) -> Any:
    return subject.runtime().from_cache_sources(
        sources,
        base,
        reader_config=subject.reader_config(shuffle=shuffle),
        writer_config=subject.writer_config(**options),
    )


def test_missing_caches_are_written_and_opened(base: Path) -> None:
    result = from_sources(base, [ListSource("a", ten_rows(2)), ListSource("b", ten_rows(3))])
    assert isinstance(result, drt.CacheSourcesDatasetSuccess)
    assert result.results == [drt.CacheWriteSuccess("a", base / "a"), drt.CacheWriteSuccess("b", base / "b")]
    assert subject.ids(result.dataset) == [0, 1, 0, 1, 2]


def test_one_source_needs_no_list(base: Path) -> None:
    result = from_sources(base, ListSource("a", ten_rows(2)))
    assert subject.ids(result.dataset) == [0, 1] and len(result.results) == 1


def test_the_results_unpack_and_match(base: Path) -> None:
    match from_sources(base, ListSource("a", ten_rows(2))):
        case drt.CacheSourcesDatasetSuccess(dataset, results):
            assert len(list(dataset)) == 2 and results[0].source_name == "a"
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize("validate_cache", [False, True])
def test_finished_caches_are_reused_without_touching_the_source(base: Path, validate_cache: bool) -> None:
    first = from_sources(base, ListSource("a", ten_rows(2)))
    before = {entry: entry.stat().st_mtime_ns for entry in (base / "a").rglob("*")}
    source = CountingSource("a", mini(50))
    again = from_sources(base, [source, ListSource("b", ten_rows(1))], validate_cache=validate_cache)
    assert source.iterations == 0
    assert again.results[0] == first.results[0]
    assert subject.ids(again.dataset) == [0, 1, 0]
    assert {entry: entry.stat().st_mtime_ns for entry in (base / "a").rglob("*")} == before


def test_failed_sources_are_left_out_of_the_dataset(base: Path) -> None:
    result = from_sources(base, [ListSource("empty", []), ListSource("a", ten_rows(2)), ListSource("bad", [(b"", None)])])
    assert isinstance(result, drt.CacheSourcesDatasetSuccess)
    assert [type(each).__name__ for each in result.results] == [
        "CacheWriteError",
        "CacheWriteSuccess",
        "CacheWriteError",
    ]
    assert subject.ids(result.dataset) == [0, 1]
    assert result.dataset.cache_paths == [base / "a"]


def test_no_cache_at_all_is_an_error_value(base: Path) -> None:
    nothing = from_sources(base, [])
    failed = from_sources(base, [ListSource("one", []), ListSource("two", [])])
    assert isinstance(nothing, drt.CacheSourcesDatasetError) and nothing.results == [] and nothing.message
    assert isinstance(failed, drt.CacheSourcesDatasetError)
    assert [each.source_name for each in failed.results] == ["one", "two"]
    assert failed.message != nothing.message
    assert all(each.message in failed.message for each in failed.results)


@pytest.mark.ours
@pytest.mark.parametrize("occupied_by", ["empty folder", "file", "foreign folder"])
def test_what_is_no_cache_is_not_reused(base: Path, occupied_by: str) -> None:
    if occupied_by == "file":
        (base / "a").write_bytes(b"mine")
    else:
        (base / "a").mkdir()
        if occupied_by == "foreign folder":
            (base / "a" / "manifest.txt").write_text("mine")
    before = sorted(base.rglob("*"))
    result = from_sources(base, [ListSource("a", ten_rows(2)), ListSource("b", ten_rows(3))])
    assert isinstance(result, drt.CacheSourcesDatasetSuccess)
    assert isinstance(result.results[0], drt.CacheWriteError) and str(base / "a") in result.results[0].message
    assert "remove it" in result.results[0].message
    assert result.results[1] == drt.CacheWriteSuccess("b", base / "b")
    assert subject.ids(result.dataset) == [0, 1, 2]
    assert [entry for entry in before if not entry.exists()] == []
    alone = from_sources(base, ListSource("a", ten_rows(2)))
    assert isinstance(alone, drt.CacheSourcesDatasetError)


def flip_byte(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(bytes(data))


def test_a_damaged_cache_is_not_reused_when_validation_is_asked_for(base: Path) -> None:
    from_sources(base, [ListSource("a", ten_rows(2)), ListSource("b", ten_rows(3))])
    flip_byte(base / "a" / "shards" / "000000.bin", -1)
    result = from_sources(base, [ListSource("a", ten_rows(2)), ListSource("b", ten_rows(3))], validate_cache=True)
    assert isinstance(result, drt.CacheSourcesDatasetSuccess)
    assert isinstance(result.results[0], drt.CacheWriteError)
    assert subject.ids(result.dataset) == [0, 1, 2]


def test_caches_stand_in_the_order_of_their_sources(base: Path) -> None:
    subject.write(base, "b", ten_rows(2))
    result = from_sources(base, [ListSource(name, ten_rows(3)) for name in ("c", "b", "a")])
    assert [each.source_name for each in result.results] == ["c", "b", "a"]
    assert result.dataset.cache_paths == [base / name for name in ("c", "b", "a")]
    assert subject.ids(result.dataset) == [0, 1, 2, 0, 1, 0, 1, 2]


def spoil_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("{")


def spoil_payload(path: Path) -> None:
    flip_byte(path / "shards" / "000000.bin", -1)


def other_columns(path: Path) -> None:
    shutil.rmtree(path)
    subject.write(path.parent, path.name, [(b"", {"other": "x"})])


def other_identity(path: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(path.parent / "a", path)


@pytest.mark.ours
@pytest.mark.parametrize("spoil", [spoil_manifest, spoil_payload, other_columns, other_identity])
def test_a_cache_that_cannot_be_opened_is_a_result_and_no_exception(base: Path, spoil: Any) -> None:
    for name in "ab":
        subject.write(base, name, ten_rows(2))
    spoil(base / "b")
    result = subject.runtime().from_cache_sources(
        [ListSource(name, ten_rows(2)) for name in ("a", "b", "c")], base,
        reader_config=subject.reader_config(validate=True), writer_config=subject.writer_config(),
    )  # fmt: skip
    assert isinstance(result, drt.CacheSourcesDatasetSuccess)
    assert [type(each) for each in result.results] == [
        drt.CacheWriteSuccess, drt.CacheWriteError, drt.CacheWriteSuccess
    ]  # fmt: skip
    assert str(base / "b") in result.results[1].message
    assert result.dataset.cache_paths == [base / "a", base / "c"] and subject.ids(result.dataset) == [0, 1, 0, 1]


def test_two_sources_of_one_name_are_refused(base: Path) -> None:
    source = CountingSource("a", ten_rows(2))
    with pytest.raises(subject.InvalidInput):
        from_sources(base, [source, ListSource("a", ten_rows(2))])
    assert source.iterations == 0 and not (base / "a").exists()
