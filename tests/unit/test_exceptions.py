"""The exception tree: each class is also a builtin, carries a stable code, and survives pickling."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.sources import ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

TREE: dict[str, tuple[type[BaseException], ...]] = {
    "DatasetRTError": (Exception,),
    "InvalidInputError": (ValueError,),
    "SampleIndexError": (IndexError,),
    "CacheNotFoundError": (FileNotFoundError, ValueError),
    "CacheExistsError": (FileExistsError,),
    "SourceError": (),
    "CorruptCacheError": (ValueError, RuntimeError),
    "UnsupportedVersionError": (ValueError, RuntimeError),
    "StorageError": (OSError, RuntimeError),
    "InternalError": (RuntimeError,),
}


@pytest.mark.parametrize(("name", "builtins"), TREE.items())
def test_class_is_in_the_tree_and_also_a_builtin(name: str, builtins: tuple[type[BaseException], ...]) -> None:
    import dataset_rt.exceptions

    kind = getattr(drt, name)
    assert kind is getattr(dataset_rt.exceptions, name)
    assert issubclass(kind, drt.DatasetRTError)
    for builtin in builtins:
        assert issubclass(kind, builtin), builtin
    assert kind.__module__ == "dataset_rt.exceptions" and kind.__doc__


def broken_index(path: Path) -> None:
    (path / "index.bin").write_bytes((path / "index.bin").read_bytes()[:-1])


def two_caches_one_id(base: Path) -> list[Path]:
    (base / "other").mkdir()
    return [subject.write(base, "a", ten_rows(2)), subject.write(base / "other", "a", ten_rows(2))]


def situations() -> dict[str, tuple[str, Callable[[Path], Any]]]:
    def dataset(base: Path) -> Any:
        return subject.open_dataset(subject.write(base, "a", ten_rows(3)))

    def corrupt(base: Path) -> Any:
        path = subject.write(base, "a", ten_rows(3))
        broken_index(path)
        return subject.open_dataset(path)

    def no_rows_left(base: Path) -> Any:
        opened = dataset(base)
        return opened.update_metadata(opened.get_metadata().head(0))

    return {
        "no rows left": ("InvalidInputError", no_rows_left),
        "no paths": ("InvalidInputError", lambda base: subject.open_dataset([])),
        "one identity twice": ("InvalidInputError", lambda base: subject.open_dataset(two_caches_one_id(base))),
        "unknown row": ("SampleIndexError", lambda base: dataset(base).get_item(0, 10**6)),
        "no such folder": ("CacheNotFoundError", lambda base: subject.open_dataset(base / "missing")),
        "short index": ("CorruptCacheError", corrupt),
        "epoch of length zero": ("InvalidInputError", lambda base: dataset(base).set_epoch_len(0)),
        "runtime without workers": ("InvalidInputError", lambda base: drt.DatasetRuntime(num_workers=0)),
    }


@pytest.mark.parametrize("situation", situations())
def test_situation_raises_its_class_with_a_code(base: Path, situation: str) -> None:
    name, action = situations()[situation]
    with pytest.raises(drt.DatasetRTError) as caught:
        action(base)
    error = caught.value
    assert type(error) is getattr(drt, name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", error.kind), "codes are lower-case words joined by hyphens"
    assert str(error) and "\n\n" not in str(error)


@pytest.mark.parametrize("situation", ["no such folder", "short index"])
def test_errors_about_files_carry_a_path(base: Path, situation: str) -> None:
    with pytest.raises(drt.DatasetRTError) as caught:
        situations()[situation][1](base)
    assert caught.value.path is not None and str(base) in str(caught.value.path)


@pytest.mark.parametrize("situation", ["no rows left", "unknown row"])
def test_errors_about_arguments_carry_no_path(base: Path, situation: str) -> None:
    with pytest.raises(drt.DatasetRTError) as caught:
        situations()[situation][1](base)
    assert caught.value.path is None


@pytest.mark.parametrize("situation", situations())
def test_raised_errors_survive_pickling(base: Path, situation: str) -> None:
    with pytest.raises(drt.DatasetRTError) as caught:
        situations()[situation][1](base)
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.kind, again.path) == (str(error), error.kind, error.path)


def test_a_missing_folder_keeps_its_errno(base: Path) -> None:
    import errno

    with pytest.raises(FileNotFoundError) as caught:
        subject.open_dataset(base / "missing")
    assert caught.value.errno in (None, errno.ENOENT)


def test_one_handler_catches_everything_of_ours(base: Path) -> None:
    caught = 0
    for _, (_, action) in situations().items():
        folder = base / str(caught)
        folder.mkdir()
        try:
            action(folder)
        except drt.DatasetRTError:
            caught += 1
    assert caught == len(situations())
