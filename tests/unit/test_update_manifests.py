"""Manifests of format 2 made format 3: the answer is a value, and nothing but the manifests changes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = ["shards_none", "shards_lz4"]


@pytest.fixture
def old(base: Path) -> list[Path]:
    """Two caches of format 2."""
    base.mkdir(exist_ok=True)
    return [Path(shutil.copytree(GOLDEN / "v2" / name, base / name)) for name in NAMES]


def manifest(path: Path) -> Path:
    return path / "manifest.json"


def test_caches_keep_the_identities_that_their_places_gave(old: list[Path]) -> None:
    dataset = subject.open_dataset(old)
    before = [subject.pairs(dataset), dataset.get_metadata().rows()]
    answer = dataset.update_manifests(version=3)
    entries = tuple(drt.ManifestUpdateEntry(manifest(path).resolve(), place, "updated") for place, path in enumerate(old))
    assert answer == drt.Ok(drt.ManifestUpdateReport(entries))
    for path in old:
        assert manifest(path).read_bytes() == manifest(GOLDEN / "migrated" / path.name).read_bytes()
    # Any order of opening gives the same identities from now on.
    again = subject.open_dataset(old[::-1], validate=True)
    assert sorted(subject.pairs(again)) == sorted(before[0])
    assert sorted(again.get_metadata().rows()) == sorted(before[1])


def test_manifests_of_format_3_are_not_touched(base: Path, old: list[Path]) -> None:
    new = subject.write(base, "new", [(b"new", {"i": 1, "split": "train"})])
    dataset = subject.open_dataset([new, *old])
    stat = manifest(new).stat()
    answer = dataset.update_manifests(3)
    assert isinstance(answer, drt.Ok)
    assert [entry.status for entry in answer.value.entries] == ["unchanged", "updated", "updated"]
    assert [entry.cache_id for entry in answer.value.entries][1:] == [1, 2]
    assert manifest(new).stat() == stat
    again = dataset.update_manifests(3)
    assert isinstance(again, drt.Ok) and {entry.status for entry in again.value.entries} == {"unchanged"}


@pytest.mark.parametrize("version", [2, 4, "3", 3.0, True, None])
def test_another_version_is_an_error_value(old: list[Path], version: Any) -> None:
    before = [manifest(path).read_bytes() for path in old]
    answer = subject.open_dataset(old).update_manifests(version)
    assert isinstance(answer, drt.Err) and isinstance(answer.error.path, drt.AbsentManifestTarget)
    assert answer.error.entries == () and answer.error.message and answer.error.path.reason
    assert [manifest(path).read_bytes() for path in old] == before


@pytest.mark.parametrize("change", ["edited", "missing", "another identity"])
def test_a_manifest_that_changed_stops_everything(old: list[Path], change: str) -> None:
    dataset = subject.open_dataset(old)
    if change == "missing":
        manifest(old[1]).unlink()
    else:
        content = json.loads(manifest(old[1]).read_text())
        edit = {"x": 1} if change == "edited" else {"format_version": 3, "cache_id": 77}
        manifest(old[1]).write_text(json.dumps({**content, **edit}))
    before = manifest(old[0]).read_bytes()
    answer = dataset.update_manifests(3)
    assert isinstance(answer, drt.Err)
    assert answer.error.path == manifest(old[1]) and answer.error.entries == ()
    if subject.IS_OURS:
        assert str(old[1]) in answer.error.message
    assert manifest(old[0]).read_bytes() == before


def test_relative_paths_stay_relative_in_errors(base: Path, old: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    dataset = subject.open_dataset([Path(name) for name in NAMES])
    os.rename(manifest(old[0]), base / "kept.json")
    answer = dataset.update_manifests(3)
    assert isinstance(answer, drt.Err) and answer.error.path == Path(NAMES[0]) / "manifest.json"
    os.rename(base / "kept.json", manifest(old[0]))
    answer = dataset.update_manifests(3)
    assert isinstance(answer, drt.Ok)
    assert [entry.path for entry in answer.value.entries] == [manifest(path).resolve() for path in old]


def test_one_folder_met_twice_is_an_error(base: Path, old: list[Path]) -> None:
    (base / "link").symlink_to(old[0])
    before = manifest(old[0]).read_bytes()
    for again in (old[0], base / "link"):
        answer = subject.open_dataset([old[0], again]).update_manifests(3)
        assert isinstance(answer, drt.Err) and answer.error.entries == ()
    assert manifest(old[0]).read_bytes() == before


def test_the_active_table_and_the_stream_stay(old: list[Path]) -> None:
    def run(migrate: bool) -> list[Any]:
        dataset = subject.open_dataset(old, shuffle=True, seed=5)
        dataset.update_metadata(dataset.get_metadata().head(30))
        dataset.set_epoch_len(7)
        seen = subject.pairs(dataset)
        iterator = iter(dataset)
        seen.extend(subject.pairs(next(iterator) for _ in range(3)))
        if migrate:
            assert isinstance(dataset.update_manifests(3), drt.Ok)
        seen.extend(subject.pairs(iterator))
        seen.extend(subject.pairs(dataset))
        return [seen, len(dataset), dataset.get_metadata().rows()]

    assert run(migrate=False) == run(migrate=True)


def test_unknown_keys_are_kept(old: list[Path]) -> None:
    content = json.loads(manifest(old[0]).read_text())
    content["mine"] = {"deep": [1, 2.5, None]}
    if subject.IS_OURS:  # the public package drops these
        content["shards"][0]["note"] = "kept"
        content["metadata_schema"][0]["unit"] = "kg"
    manifest(old[0]).write_text(json.dumps(content, indent=2))
    assert isinstance(subject.open_dataset(old).update_manifests(3), drt.Ok)
    assert json.loads(manifest(old[0]).read_text()) == {**content, "format_version": 3, "cache_id": 0}


def test_answers_are_frozen_comparable_and_picklable() -> None:
    entry = drt.ManifestUpdateEntry(Path("m"), 1, "updated")
    answers: list[Any] = [
        drt.Ok(drt.ManifestUpdateReport((entry,))),
        drt.Err(drt.ManifestUpdateError(Path("m"), "why", (entry,))),
        drt.Err(drt.ManifestUpdateError(drt.AbsentManifestTarget("none"), "why")),
    ]
    for answer in answers:
        assert pickle.loads(pickle.dumps(answer)) == answer
        with pytest.raises(AttributeError):
            setattr(answer, "value" if isinstance(answer, drt.Ok) else "error", None)
    match answers[0]:
        case drt.Ok(drt.ManifestUpdateReport((drt.ManifestUpdateEntry(path, cache_id, status),))):
            assert (path, cache_id, status) == (Path("m"), 1, "updated")
        case _:
            pytest.fail("the report does not match")
