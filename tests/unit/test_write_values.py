"""What a source may yield, and that it comes back exactly."""

from __future__ import annotations

import array
import collections
import enum
import json
import types
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import sources, values

pytestmark = pytest.mark.quick

ALGOS = ("none", "lz4")


def stored(base: Path, rows: list[Any], **options: Any) -> list[Any]:
    """Write rows, open the cache with validation, and return its samples."""
    return list(subject.open_dataset(subject.write(base, "a", rows, **options), validate=subject.IS_OURS))


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("max_shard_bytes", [1, 500, 1 << 26])
def test_every_kind_comes_back_exactly(base: Path, algo: str, max_shard_bytes: int) -> None:
    rows = sources.tame_rows(60) if not subject.IS_OURS else None
    for number, made in enumerate([rows] if rows else [sources.tame_rows(60), sources.all_kinds(), sources.random_rows(60, 1)]):
        path = subject.write(base, f"a{number}", made, algo=algo, max_shard_bytes=max_shard_bytes)
        cache_id = json.loads((path / "manifest.json").read_text())["cache_id"]
        wanted = [values.expected_sample(*row, cache_id, i) for i, row in enumerate(made)]
        assert [values.plain_sample(sample) for sample in subject.open_dataset(path)] == wanted


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (b"", b""),
        (b"abc", b"abc"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abc")[::-1], b"cba"),
        (memoryview(b"abcdef").cast("B", (2, 3)), b"abcdef"),
        (array.array("h", [1, 2]), b"\x01\x00\x02\x00"),
    ],
)
def test_any_buffer_is_a_payload(base: Path, data: Any, kept: bytes) -> None:
    (sample,) = stored(base, [(data, {"i": 1})])
    assert sample.data == kept and type(sample.data) is bytes


def test_numpy_arrays_are_payloads(base: Path) -> None:
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(12, dtype="<i4").reshape(3, 4)
    given = [grid, grid.T, grid[::-1, ::2], numpy.zeros((0, 5))]
    assert [sample.data for sample in stored(base, [(value, {"i": 1}) for value in given])] == [
        value.tobytes() for value in given
    ]


class Level(enum.IntEnum):
    LOW = 1


class Indexed:
    def __index__(self) -> int:
        return 12


class Floaty:
    def __float__(self) -> float:
        return 2.5


class Text(str):
    pass


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, True), (False, False),
        (0, 0), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (Level.LOW, 1), (Indexed(), 12),
        (0.5, 0.5), (-0.0, -0.0), (Decimal("1.25"), 1.25), (Floaty(), 2.5), (5e-324, 5e-324),
        ("", ""), ("日本語 😀", "日本語 😀"), (Text("x"), "x"), ("nul\0inside", "nul\0inside"),
    ],
)  # fmt: skip
def test_metadata_value_is_kept_as_its_kind(base: Path, given: Any, kept: Any) -> None:
    (sample,) = stored(base, [(b"", {"v": given})])
    assert values.plain(sample.metadata["v"]) == values.plain(kept)


def test_numpy_scalars_are_kept_as_their_kind(base: Path) -> None:
    numpy = pytest.importorskip("numpy")
    given = {
        "b": numpy.bool_(True), "i": numpy.int16(-3), "u": numpy.uint64(2**63 - 1), "f": numpy.float32(0.5),
        "d": numpy.float64(0.125), "s": numpy.str_("x"),
    }  # fmt: skip
    (sample,) = stored(base, [(b"", given)])
    wanted = {"b": True, "d": 0.125, "f": 0.5, "i": -3, "s": "x", "u": 2**63 - 1}
    assert values.plain_metadata(sample.metadata) == values.plain_metadata(wanted)


def test_columns_are_ordered_by_the_bytes_of_their_names(base: Path) -> None:
    names = ["é", "z", "A", "a", "日", "😀", "\uffff", "_", 'q"uo\\te', "tab\t", "nl\n", "0"]
    (sample,) = stored(base, [(b"", dict.fromkeys(names, 1))])
    assert list(sample.metadata) == sorted(names, key=lambda name: name.encode())


def test_later_rows_may_order_their_keys_as_they_like(base: Path) -> None:
    rows = [(b"", {"a": 1, "b": 2}), (b"", {"b": 4, "a": 3})]
    assert [sample.metadata for sample in stored(base, rows)] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


@pytest.mark.ours
def test_metadata_may_be_empty(base: Path) -> None:
    samples = stored(base, [(b"x", {}), (b"", {}), (b"zz", {})])
    assert [(sample.data, sample.metadata) for sample in samples] == [(b"x", {}), (b"", {}), (b"zz", {})]
    table = subject.open_dataset(base / "a").get_metadata()
    assert table.columns == ["cache_id", "sample_id", "weight"] and table.height == 3


class FrozenMapping(Mapping[str, Any]):
    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


def test_a_dict_subclass_is_metadata(base: Path) -> None:
    (sample,) = stored(base, [(b"", collections.OrderedDict(b=1, a=2))])
    assert sample.metadata == {"a": 2, "b": 1} and type(sample.metadata) is dict


@pytest.mark.ours
@pytest.mark.parametrize(
    "wrap",
    [types.MappingProxyType, FrozenMapping, collections.ChainMap, collections.UserDict],
    ids=lambda k: k.__name__,
)
def test_any_mapping_is_metadata(base: Path, wrap: Any) -> None:
    (sample,) = stored(base, [(b"", wrap({"b": 1, "a": "x"}))])
    assert sample.metadata == {"a": "x", "b": 1}


def test_cache_input_and_plain_tuples_mix(base: Path) -> None:
    rows = [drt.CacheInput(b"a", {"i": 0}), (b"b", {"i": 1}), drt.CacheInput(data=b"c", metadata={"i": 2})]
    assert [sample.data for sample in stored(base, rows)] == [b"a", b"b", b"c"]


def test_a_source_may_reuse_its_buffer_and_its_dict(base: Path) -> None:
    def reusing() -> Iterator[Any]:
        buffer, metadata = bytearray(4), {"i": 0}
        for i in range(500):
            buffer[:] = i.to_bytes(4, "little")
            metadata["i"] = i
            yield buffer, metadata
            buffer[:] = b"gone"
            metadata["i"] = -1

    samples = stored(base, reusing())  # type: ignore[arg-type]
    assert [(int.from_bytes(sample.data, "little"), sample.metadata["i"]) for sample in samples] == [(i, i) for i in range(500)]


@pytest.mark.parametrize("name", ["a", "日本語", "naïve", "e\u0301", "😀", " padded ", "...", "~", "a\\b", "c:", "x" * 255])
def test_source_name_is_the_folder_and_gives_the_identity(base: Path, name: str) -> None:
    import hashlib

    path = subject.write(base, name, sources.ten_rows(2))
    assert path == base / name and path.is_dir()
    wanted = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") & (2**63 - 1)
    assert {sample.cache_id for sample in subject.open_dataset(path)} == {wanted}


def test_the_base_folder_is_made_when_missing(tmp_path: Path) -> None:
    path = subject.write(tmp_path / "new" / "deep", "a", sources.ten_rows(2))
    assert path.is_dir()


class PathOfAnotherLibrary:
    def __init__(self, text: str) -> None:
        self.text = text

    def __fspath__(self) -> str:
        return self.text


@pytest.mark.parametrize("form", [str, Path, PurePosixPath, PathOfAnotherLibrary])
def test_result_path_keeps_the_callers_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (result,) = subject.write_results(form("some/base"), sources.ListSource("a", sources.ten_rows(2)))
    assert result == drt.CacheWriteSuccess("a", Path("some/base/a"))
    assert (tmp_path / "some" / "base" / "a" / "manifest.json").is_file()


def test_an_empty_path_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (result,) = subject.write_results("", sources.ListSource("a", sources.ten_rows(2)))  # type: ignore[arg-type]
    assert result == drt.CacheWriteSuccess("a", Path("a"))


def test_files_obey_the_umask(base: Path) -> None:
    from support.child import run_script

    script = """
import os
from pathlib import Path
from support import drt, sources
os.umask(0o027)
path = drt.write(Path(ARGS["base"]), "a", sources.ten_rows())
report({str(entry.relative_to(path)): oct(entry.stat().st_mode & 0o777) for entry in [path, *path.rglob("*")]})
"""
    modes = run_script(script, {"base": str(base)})
    assert modes["."] == modes["shards"] == oct(0o750)
    assert modes["manifest.json"] == modes["index.bin"] == modes["shards/000000.bin"] == oct(0o640)


def test_shards_rotate_at_the_limit_and_oversized_records_stand_alone(base: Path) -> None:
    rows = [(bytes(100), {"i": 1}) for _ in range(6)]  # a record is 8 + 7 + 100 bytes
    for limit, shards in ((229, 6), (230, 3), (1, 6), (115 * 6, 1)):
        path = subject.write(base, f"limit-{limit}", rows, max_shard_bytes=limit)
        assert [entry.name for entry in sorted((path / "shards").iterdir())] == [f"{i:06d}.bin" for i in range(shards)]
        assert len(list(subject.open_dataset(path))) == 6


@pytest.mark.ours
def test_a_cache_carries_checksums_for_its_records(base: Path) -> None:
    path = subject.write(base, "a", sources.ten_rows(5))
    assert "drt_record_checksums" in json.loads((path / "manifest.json").read_text())
    assert (path / "drt_record_checksums.bin").stat().st_size >= 5 * 8
