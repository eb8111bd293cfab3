"""Damaged golden caches: every broken promise is an ordinary error, and no damage gives wrong data in silence.

`golden/damaged/CASE/EXPECT.json` says in its `want` what has to happen. Each case runs in a child process with a
limited address space, so a crash, a hang and an allocation from an unchecked length are all failures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as api
import pytest
from support import drt
from support.child import TESTS, ChildDied, Lines
from support.child import probe as start_probe
from support.damage import assert_names_the_record, place
from support.sources import noise

pytestmark = pytest.mark.quick

DAMAGED = TESTS / "golden" / "damaged"
CASES = sorted(path.parent.name for path in DAMAGED.glob("*/EXPECT.json"))

# What each `want` allows, by stage: "ok" right rows, "error" a DatasetRTError, "any" either of them, and "altered"
# rows that carry what the altered record says. A stage after an error does not exist.
AT_OPEN = {"open": "error"}
AT_READ = {"open": "any", "read": "error", "get_metadata": "any"}
AT_TABLE = {"open": "any", "read": "any", "get_metadata": "error"}
ACCEPT = {"open": "ok", "read": "ok", "get_metadata": "ok"}
LENIENT = {"open": "any", "read": "any", "get_metadata": "any"}
ALTERED = {"open": "ok", "read": "altered", "get_metadata": "any"}

PLAIN_RULES: dict[str, dict[str, str]] = {
    "accept": ACCEPT,
    "accept (same digest in other case) or reject with verification; choose and document": ACCEPT,
    "accept unless checksums are verified; reject then": ALTERED,
    "open may pass; reject at read or with checksums": AT_READ,
    "open may pass; reject when the row is read": AT_READ,
    "reject at metadata access": AT_TABLE,
    "reject at open": AT_OPEN,
    "reject at open (bounds are cheap to check)": AT_OPEN,
    "reject at open (row reaches past the shard)": AT_OPEN,
    "reject at open or at first metadata access": AT_TABLE,
    "reject at open or at first metadata access, as a normal error": AT_TABLE,
    "reject at open or at first metadata access; 0.4.8 panics inside": AT_TABLE,
    "reject at open; never allocate before the bounds check": AT_OPEN,
    "reject at read when metadata is cross-checked": ALTERED,
    "reject when the row is read (0.4.8 accepts it)": AT_READ,
    "reject without allocating 4 GiB": AT_READ,
    "reject, or accept as a lenient reader; never write it": LENIENT,
}
VALIDATE_RULES = {
    **PLAIN_RULES,
    "accept unless checksums are verified; reject then": AT_OPEN,
    "open may pass; reject at read or with checksums": AT_READ,
    "reject at read when metadata is cross-checked": AT_READ,
}


@pytest.fixture(scope="module")
def probe() -> Iterator[Lines]:
    child = start_probe()
    yield child
    child.close()


def expectation(case: str) -> dict[str, Any]:
    return json.loads((DAMAGED / case / "EXPECT.json").read_text(encoding="utf-8"))


def intact(probe: Lines, case: str) -> dict[str, Any]:
    """What the undamaged twin of a case answers."""
    cache = DAMAGED / f"_base_{expectation(case)['base']}" / "cache"
    answer = probe.ask({"paths": [str(cache)], "io": "mmap", "validate": True})
    assert all("ok" in stage for stage in answer.values()), answer
    return answer


def altered_fields(seen: list[dict[str, Any]], right: list[dict[str, Any]]) -> int:
    """Number of rows that differ; the rows themselves have to be the same ones in the same order."""
    assert [row["sample_id"] for row in seen] == [row["sample_id"] for row in right]
    return sum(row != other for row, other in zip(seen, right, strict=True))


@pytest.mark.ours
@pytest.mark.parametrize("validate", [False, True], ids=["plain", "validate"])
@pytest.mark.parametrize("io", drt.IO_MODES)
@pytest.mark.parametrize("case", CASES)
def test_damage_is_noticed_where_it_must_be(probe: Lines, case: str, io: str, validate: bool) -> None:
    want = expectation(case)["want"]
    rules = (VALIDATE_RULES if validate else PLAIN_RULES)[want]
    right = intact(probe, case)
    answer = probe.ask({"paths": [str(DAMAGED / case / "cache")], "io": io, "validate": validate})

    for stage in ("open", "read", "get_metadata"):
        if stage not in rules:
            assert stage not in answer, f"{stage} worked although the cache must be refused before it"
            continue
        if stage not in answer:
            break  # an earlier error is allowed wherever the rule for `open` allows one
        rule, outcome = rules[stage], answer[stage]
        if "error" in outcome:
            assert rule in ("error", "any"), f"{stage}: {outcome['error']}"
            error = outcome["error"]
            assert "DatasetRTError" in error["bases"], error
            assert "InternalError" not in error["bases"], error
            assert error["kind"], "an error without a kind"
        elif rule == "altered":
            changed = altered_fields(outcome["ok"], right["read"]["ok"])
            assert changed <= 2, "more rows differ than were changed"
            if case == "shard_json_value_changed_resealed":
                assert changed == 1, "the record's own value has to come back when nothing is verified"
        else:
            assert rule in ("ok", "any"), f"{stage} gave a value: {outcome['ok']}"
            if not (stage == "get_metadata" and case == "metadata_bit_flip"):
                assert outcome["ok"] == right[stage]["ok"], f"{stage} gave wrong data in silence"
    if rules.get("get_metadata") == "error":
        assert "error" in answer.get("get_metadata", answer["open"])
    if rules.get("read") == "error":
        assert "error" in answer.get("read", answer["open"])


@pytest.mark.parametrize("case", CASES)
def test_the_public_package_behaves_as_the_cases_say(probe: Lines, case: str) -> None:
    """Holds the test's own machinery to the recorded answers of 0.4.8; runs only with that package installed."""
    if drt.IS_OURS:
        pytest.skip("our library is installed")
    recorded = expectation(case)["dataset_rt_0.4.8"]
    for mode in ("plain", "validate"):
        if isinstance(recorded[mode], str):
            continue  # it dies there
        request = {"paths": [str(DAMAGED / case / "cache")], "io": "mmap", "validate": mode == "validate"}
        try:
            answer = probe.ask(request)
        except ChildDied as death:
            assert "memory allocation" in str(death)  # it believes a length; the probe's limit stops it
            continue
        for stage, outcome in recorded[mode].items():
            if outcome.startswith("ok"):
                assert "ok" in answer[stage], (mode, stage, answer[stage])
            else:
                assert outcome in answer[stage]["error"]["bases"], (mode, stage, answer[stage])


@pytest.mark.ours
@pytest.mark.parametrize("io", drt.IO_MODES)
@pytest.mark.parametrize(
    ("case", "mentions"),
    [
        ("shard_truncated", []),
        ("shard_missing", []),
        ("shard_extended", []),
        ("manifest_version_4", ["4"]),
        ("manifest_version_1", ["1"]),
        ("manifest_truncated", ["manifest.json"]),
        ("manifest_empty", ["manifest.json"]),
        ("index_partial_row", ["index.bin"]),
        ("index_missing", ["index.bin"]),
        ("metadata_missing", ["metadata.arrow"]),
    ],
)
def test_the_error_names_the_cache_and_the_file(probe: Lines, case: str, mentions: list[str], io: str) -> None:
    cache = DAMAGED / case / "cache"
    if case.startswith("shard_"):
        shards = DAMAGED / f"_base_{expectation(case)['base']}" / "cache" / "shards"
        mentions = [next(name for name in sorted(os.listdir(shards)) if _differs(case, name))]
    answer = probe.ask({"paths": [str(cache)], "io": io, "validate": False})
    error = answer["open"]["error"]
    said = error["message"] + " " + str(error["path"])
    assert str(cache) in said, error
    for text in mentions:
        assert text in said.replace(str(cache), "CACHE"), error


def _differs(case: str, shard: str) -> bool:
    there = DAMAGED / case / "cache" / "shards" / shard
    base = DAMAGED / f"_base_{expectation(case)['base']}" / "cache" / "shards" / shard
    return not there.exists() or there.read_bytes() != base.read_bytes()


@pytest.mark.ours
@pytest.mark.parametrize("case", ["manifest_version_4", "manifest_version_1"])
def test_an_unknown_version_is_its_own_class_of_error(probe: Lines, case: str) -> None:
    answer = probe.ask({"paths": [str(DAMAGED / case / "cache")], "io": "mmap", "validate": False})
    bases = answer["open"]["error"]["bases"]
    assert {"UnsupportedVersionError", "ValueError", "RuntimeError"} <= set(bases)


@pytest.mark.ours
@pytest.mark.parametrize(
    "case", [name for name in CASES if name.startswith(("index_length", "index_offset", "lz4_", "shard_trunc"))]
)
def test_broken_structure_is_a_corrupt_cache(probe: Lines, case: str) -> None:
    answer = probe.ask({"paths": [str(DAMAGED / case / "cache")], "io": "mmap", "validate": False})
    error = answer["open"].get("error") or answer["read"]["error"]
    assert {"CorruptCacheError", "ValueError", "RuntimeError"} <= set(error["bases"]), error


@pytest.mark.ours
@pytest.mark.parametrize("size", [100, 100_000], ids=["small", "large"])
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_shard_that_loses_its_end_while_it_is_read_names_the_record(base: Path, algo: str, size: int) -> None:
    path = drt.write(base, "a", [(noise(f"cut-{i}", size), {"i": i}) for i in range(8)], algo=algo)
    dataset = drt.open_dataset(path, io="pread")
    shard, offset, length = place(path, 7)
    found = offset + length - 1
    expected = os.path.getsize(shard)
    os.truncate(shard, found)
    cache_id = dataset.get_metadata()["cache_id"][0]
    for read in (lambda: list(dataset), lambda: dataset.get_item(cache_id, 7), lambda: dataset.get_many([(cache_id, 7)] * 3)):
        with pytest.raises(api.CorruptCacheError) as caught:
            read()
        assert_names_the_record(caught.value, path, 7)
        assert f"cache {cache_id}, sample 7 " in str(caught.value)
        assert caught.value.kind == "damaged-record"
        assert f"had {expected} bytes when it was opened and has {found} now" in str(caught.value)
    assert dataset.get_item(cache_id, 6).data == noise("cut-6", size)
