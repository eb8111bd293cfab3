"""Golden caches, value for value, in both format versions and both ways of reading.

The caches are opened in a child process (`support/probe.py`), because one of them makes the public package abort.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import drt, values
from support.child import TESTS, Lines
from support.child import probe as start_probe

pytestmark = pytest.mark.quick

GOLDEN = TESTS / "golden"
VERSIONS = ("v2", "v3", "migrated")
CACHES = [f"{version}/{entry.stem}" for version in VERSIONS for entry in sorted((GOLDEN / "expected" / version).glob("*.json"))]
ODD_NAMES = ("reserved_keys", "nul_key")  # columns a table cannot show
POLARS_KINDS = {"bool": "Boolean", "int": "Int64", "float": "Float64", "string": "String"}
READABLE_BY_ORACLE = [name for name in CACHES if not name.endswith(("nonfinite", "nul_key", "lossy_floats"))]


@pytest.fixture(scope="module")
def probe() -> Iterator[Lines]:
    child = start_probe()
    yield child
    child.close()


def expected_rows(cache: str, position: int = 0) -> list[dict[str, Any]]:
    expected = json.loads((GOLDEN / "expected" / f"{cache}.json").read_text(encoding="utf-8"))
    rows = []
    for sample in expected["samples"]:
        bits = sample.get("float_bits", {})
        metadata = []
        for column in expected["schema"]:
            name, value = column["name"], sample["metadata"][column["name"]]
            if column["kind"] == "float":
                (value,) = struct.unpack(">d", bytes.fromhex(bits[name]))
            metadata.append([name, *values.plain(value)])
        rows.append(
            {
                "cache_id": position if sample["cache_id"] is None else sample["cache_id"],
                "sample_id": sample["sample_id"],
                "len": sample["len"],
                "sha256": sample["sha256"],
                "metadata": metadata,
            }
        )
    return rows


def expected_table(cache: str, position: int = 0) -> dict[str, Any]:
    expected = json.loads((GOLDEN / "expected" / f"{cache}.json").read_text(encoding="utf-8"))
    stored = [[column["name"], POLARS_KINDS[column["kind"]]] for column in expected["schema"]]
    rows = [
        [
            ["int", row["cache_id"]],
            ["int", row["sample_id"]],
            *([kind, value] for _, kind, value in row["metadata"]),
            values.plain(1.0),
        ]
        for row in expected_rows(cache, position)
    ]
    columns = [["cache_id", "UInt64"], ["sample_id", "UInt64"], *stored, ["weight", "Float64"]]
    return {"columns": columns, "rows": rows}


def subject_can_read(cache: str) -> bool:
    return drt.IS_OURS or cache in READABLE_BY_ORACLE


@pytest.mark.parametrize("validate", [False, True], ids=["plain", "validate"])
@pytest.mark.parametrize("io", drt.IO_MODES)
@pytest.mark.parametrize("cache", CACHES)
def test_every_row_of_a_golden_cache_comes_back(probe: Lines, cache: str, io: str, validate: bool) -> None:
    if not subject_can_read(cache):
        pytest.skip("the public package cannot read this cache")
    answer = probe.ask({"paths": [str(GOLDEN / cache)], "io": io, "validate": validate, "get_metadata": False})
    assert answer["open"] == {"ok": len(expected_rows(cache))}, answer
    assert answer["read"].get("ok") == expected_rows(cache), answer["read"].get("error")


@pytest.mark.parametrize("cache", [name for name in CACHES if not name.endswith(ODD_NAMES)])
def test_metadata_table_of_a_golden_cache_comes_back(probe: Lines, cache: str) -> None:
    answer = probe.ask({"paths": [str(GOLDEN / cache)], "io": "mmap", "validate": False})
    assert answer["get_metadata"].get("ok") == expected_table(cache), answer["get_metadata"].get("error")


@pytest.mark.ours
@pytest.mark.parametrize("io", drt.IO_MODES)
@pytest.mark.parametrize("cache", [name for name in CACHES if name.endswith(ODD_NAMES)])
def test_columns_no_table_can_show_are_an_ordinary_error_and_rows_stay_readable(probe: Lines, cache: str, io: str) -> None:
    answer = probe.ask({"paths": [str(GOLDEN / cache)], "io": io, "validate": False})
    assert answer["read"].get("ok") == expected_rows(cache)
    error = answer["get_metadata"].get("error")
    if error is None:  # a table under other names would do, as long as it is a table
        columns = [name for name, _ in answer["get_metadata"]["ok"]["columns"]]
        assert len(columns) == len(set(columns)) and not any("\0" in name for name in columns)
    else:
        assert "DatasetRTError" in error["bases"] and error["kind"]


def test_version_two_caches_are_known_by_their_position_in_the_list(probe: Lines) -> None:
    names = ["v2/bits", "v2/bits", "v2/kinds_none"]
    paths = [str(GOLDEN / name) for name in names[:2]]
    answer = probe.ask({"paths": paths, "io": "mmap", "validate": False})
    assert answer["read"]["ok"] == expected_rows("v2/bits", 0) + expected_rows("v2/bits", 1)
    table = answer["get_metadata"]["ok"]
    assert table["rows"] == expected_table("v2/bits", 0)["rows"] + expected_table("v2/bits", 1)["rows"]


def test_version_two_and_three_open_together(probe: Lines) -> None:
    paths = [str(GOLDEN / "v3" / "shards_none"), str(GOLDEN / "v2" / "shards_lz4")]
    answer = probe.ask({"paths": paths, "io": "mmap", "validate": True})
    assert answer["read"]["ok"] == expected_rows("v3/shards_none") + expected_rows("v2/shards_lz4", 1)


def test_migrated_caches_keep_the_identities_of_their_manifests(probe: Lines) -> None:
    paths = [str(GOLDEN / "migrated" / name) for name in ("shards_lz4", "shards_none")]
    answer = probe.ask({"paths": paths, "io": "mmap", "validate": True})
    assert answer["read"]["ok"] == expected_rows("migrated/shards_lz4") + expected_rows("migrated/shards_none")


def test_the_golden_caches_were_all_found() -> None:
    assert len([name for name in CACHES if name.startswith("v2/")]) == 13
    assert len([name for name in CACHES if name.startswith("v3/")]) == 13
    assert Path(GOLDEN / "v3" / "naïve 日本 😀").is_dir()
