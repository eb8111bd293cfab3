"""What a source may not yield. A mistake is a result that says where it is, and nothing stays behind."""

from __future__ import annotations

import re
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import script_command
from support.sources import CountingSource, ListSource, ten_rows

pytestmark = pytest.mark.quick

BLOCK = 10_000  # rows that may be pulled after a bad one; a bound, not a promise


def good(i: int) -> tuple[bytes, dict[str, Any]]:
    return b"x", {"i": i, "f": 0.5, "s": "t", "b": True}


def with_bad_row(bad: Any, at: int = 5, total: int = 10) -> Iterator[Any]:
    for i in range(total):
        yield bad if i == at else good(i)


# (bad row, words the message needs besides source and row); the public package knows the words marked True
BAD_ROWS: dict[str, tuple[Any, list[str], bool]] = {
    "None value": ((b"x", {**good(5)[1], "s": None}), ["s", "None"], True),
    "list value": ((b"x", {**good(5)[1], "s": [1]}), ["s", "list"], True),
    "bytes value": ((b"x", {**good(5)[1], "s": b"t"}), ["s", "bytes"], True),
    "complex value": ((b"x", {**good(5)[1], "f": 1j}), ["f", "complex"], True),
    "lone surrogate": ((b"x", {**good(5)[1], "s": "\ud800"}), ["s"], True),
    "missing field": ((b"x", {"i": 5, "f": 0.5, "s": "t"}), ["b"], True),
    "extra field": ((b"x", {**good(5)[1], "more": 1}), ["more"], True),
    "int for float": ((b"x", {**good(5)[1], "f": 1}), ["f", "float", "int"], True),
    "float for int": ((b"x", {**good(5)[1], "i": 1.0}), ["i", "float", "int"], True),
    "bool for int": ((b"x", {**good(5)[1], "i": True}), ["i", "bool", "int"], True),
    "int for bool": ((b"x", {**good(5)[1], "b": 1}), ["b", "bool", "int"], True),
    "text for int": ((b"x", {**good(5)[1], "i": "5"}), ["i", "int"], True),
    "key that is no text": ((b"x", {**good(5)[1], 7: 1}), [], True),
    "no mapping": ((b"x", [("i", 5)]), ["list"], True),
    "metadata None": ((b"x", None), ["None"], True),
    "text payload": (("text", good(5)[1]), ["str", "encode"], True),
    "None payload": ((None, good(5)[1]), ["None"], True),
    "one-tuple": ((b"x",), [], True),
    "three-tuple": ((b"x", good(5)[1], 1), [], True),
    "list instead of tuple": ([b"x", good(5)[1]], ["list"], True),
    "bare bytes": (b"x", ["bytes"], True),
    "NaN": ((b"x", {**good(5)[1], "f": float("nan")}), ["f", "NaN"], False),
    "infinity": ((b"x", {**good(5)[1], "f": float("inf")}), ["f", "inf"], False),
    "negative infinity": ((b"x", {**good(5)[1], "f": float("-inf")}), ["f", "inf"], False),
    "int above i64": ((b"x", {**good(5)[1], "i": 2**63}), ["i", "9223372036854775808"], False),
    "int below i64": ((b"x", {**good(5)[1], "i": -(2**63) - 1}), ["i", "-9223372036854775809"], False),
    "huge int": ((b"x", {**good(5)[1], "i": 10**400}), ["i"], False),
    "int payload": ((5, good(5)[1]), ["int"], False),
    "list payload": (([1, 2], good(5)[1]), ["list"], False),
    "tuple payload": (((1, 2), good(5)[1]), ["tuple"], False),
}
KNOWN_TO_ALL = [name for name, (_, _, shared) in BAD_ROWS.items() if shared]


def check_message(message: str, words: list[str], *, name: str = "src", row: int = 5) -> None:
    assert name in message, message
    assert re.search(rf"\b{row}\b", message), f"no row number in: {message}"
    for word in words:
        assert re.search(rf"(?<![0-9A-Za-z]){re.escape(word)}", message, re.IGNORECASE), f"no {word!r} in: {message}"


@pytest.mark.parametrize("case", KNOWN_TO_ALL)
def test_bad_row_is_an_error_result_and_leaves_nothing(base: Path, case: str) -> None:
    subject.write_error(base, "src", with_bad_row(BAD_ROWS[case][0]))


@pytest.mark.ours
@pytest.mark.parametrize("case", BAD_ROWS)
def test_message_names_source_row_and_field(base: Path, case: str) -> None:
    bad, words, _ = BAD_ROWS[case]
    check_message(subject.write_error(base, "src", with_bad_row(bad)), words)


@pytest.mark.ours
@pytest.mark.parametrize("make", ["array(['a', None], dtype=object)", "int64(5)", "float32(3)", "bool_(True)", "array(7)"])
def test_addresses_and_lone_numbers_are_no_payloads(base: Path, make: str) -> None:
    numpy = pytest.importorskip("numpy")
    payload = eval(make, vars(numpy).copy())
    check_message(subject.write_error(base, "src", with_bad_row((payload, good(5)[1]))), ["serialize"])


@pytest.mark.ours
@pytest.mark.parametrize("case", BAD_ROWS)
def test_first_row_is_judged_like_any_other(base: Path, case: str) -> None:
    bad, _, _ = BAD_ROWS[case]
    if case in (
        "missing field",
        "extra field",
        "int for float",
        "float for int",
        "bool for int",
        "int for bool",
        "text for int",
    ):
        pytest.skip("a first row defines the columns")
    check_message(subject.write_error(base, "src", with_bad_row(bad, at=0)), [], row=0)


@pytest.mark.ours
@pytest.mark.parametrize("name", ["cache_id", "sample_id", "weight", "", "a\0b"])
def test_names_no_table_can_have_are_refused_at_the_first_row(base: Path, name: str) -> None:
    source = CountingSource("src", ((b"", {"ok": 1, name: 1}) for _ in range(200_000)))
    (result,) = subject.write_results(base, source)
    assert isinstance(result, drt.CacheWriteError)
    words = [name.partition("\0")[0]] if name else []
    check_message(result.message.replace(str(base), "BASE"), words, row=0)
    assert source.pulled <= BLOCK and not (base / "src").exists() and subject.leftovers(base) == []


@pytest.mark.ours
@pytest.mark.parametrize("as_list", [False, True], ids=["one source", "list of sources"])
@pytest.mark.parametrize("case", ["None value", "int for float", "NaN", "extra field", "text payload", "one-tuple"])
def test_a_bad_row_is_noticed_soon_after_it_was_pulled(base: Path, case: str, as_list: bool) -> None:
    source = CountingSource("src", with_bad_row(BAD_ROWS[case][0], total=200_000))
    after = CountingSource("after", ten_rows())
    results = subject.write_results(base, [source, after] if as_list else source)
    assert isinstance(results[0], drt.CacheWriteError)
    check_message(results[0].message.replace(str(base), "BASE"), [])
    assert source.pulled <= BLOCK
    if as_list:
        assert results[1] == drt.CacheWriteSuccess("after", base / "after")


@pytest.mark.parametrize("number_of_good_rows", [0, 1, 5, 700])
def test_exception_of_a_source_is_an_error_result(base: Path, number_of_good_rows: int) -> None:
    def rows() -> Iterator[Any]:
        for i in range(number_of_good_rows):
            yield good(i)
        raise KeyError("some key")

    message = subject.write_error(base, "src", rows())
    assert "KeyError" in message and "some key" in message


@pytest.mark.ours
def test_exception_of_a_source_is_reported_with_the_row_it_came_at(base: Path) -> None:
    def rows() -> Iterator[Any]:
        for i in range(5):
            yield good(i)
        raise KeyError("some key")

    check_message(subject.write_error(base, "src", rows()), ["KeyError", "some key"])


@pytest.mark.ours
def test_exception_of_a_source_is_the_cause_of_its_result(base: Path) -> None:
    raised = KeyError("some key")

    def rows() -> Iterator[Any]:
        yield good(0)
        raise raised

    (result,) = subject.write_results(base, ListSource("src", rows()))
    assert type(result.exception) is drt.SourceError and result.exception.kind == "source-raised"
    assert result.exception.__cause__ is raised
    assert "rows" in [frame.name for frame in traceback.extract_tb(raised.__traceback__)]


def test_exception_from_starting_a_source_is_an_error_result(base: Path) -> None:
    class Broken:
        name = "src"

        def __iter__(self) -> Iterator[Any]:
            raise LookupError("cannot start")

    (result,) = subject.write_results(base, Broken())
    assert isinstance(result, drt.CacheWriteError) and "cannot start" in result.message


def test_a_source_that_is_no_iterable_is_an_error_result(base: Path) -> None:
    class Nothing:
        name = "src"

    (result,) = subject.write_results(base, Nothing())
    assert isinstance(result, drt.CacheWriteError) and result.source_name == "src"


def test_a_long_message_of_a_source_comes_through(base: Path) -> None:
    def rows() -> Iterator[Any]:
        raise ValueError("x" * 50_000)
        yield

    assert "x" * 50_000 in subject.write_error(base, "src", rows())


def test_a_failed_source_is_closed(base: Path) -> None:
    seen = []

    def rows() -> Iterator[Any]:
        try:
            yield from with_bad_row((b"x", {"other": 1}))
        finally:
            seen.append("closed")

    subject.write_error(base, "src", rows())
    assert seen == ["closed"]


def test_no_rows_is_an_error_result(base: Path) -> None:
    assert subject.write_error(base, "src", [])


class Unnamed:
    def __iter__(self) -> Iterator[Any]:
        return iter(ten_rows())


class RaisingName(Unnamed):
    @property
    def name(self) -> str:
        raise RuntimeError("no name today")


def named(name: Any) -> Any:
    return ListSource(name, ten_rows())


@pytest.mark.parametrize(
    "source",
    [Unnamed(), RaisingName(), named(5), named(None), named(b"a"), named(""), named("."), named(".."), named("a/b"),
     named("/a"), named("\ud800")],
)  # fmt: skip
def test_source_without_a_usable_name_is_known_by_its_place(base: Path, source: Any) -> None:
    results = subject.write_results(base, [named("good"), source])
    assert results[0] == drt.CacheWriteSuccess("good", base / "good")
    assert isinstance(results[1], drt.CacheWriteError) and results[1].source_name == "source[1]"
    assert sorted(entry.name for entry in base.iterdir()) in (["good"], ["good", "tmp"])


@pytest.mark.parametrize("name", ["nul\0inside", "x" * 256])
def test_name_the_file_system_refuses_is_an_error_result(base: Path, name: str) -> None:
    (result,) = subject.write_results(base, named(name))
    assert isinstance(result, drt.CacheWriteError)


def test_name_of_the_work_area_is_an_error_result(base: Path) -> None:
    (result,) = subject.write_results(base, named("tmp"))
    assert isinstance(result, drt.CacheWriteError) and not (base / "tmp" / "manifest.json").exists()


@pytest.mark.parametrize("occupied_by", ["cache", "empty folder", "file", "dangling link"])
def test_an_occupied_name_is_an_error_result_and_is_left_alone(base: Path, occupied_by: str) -> None:
    target = base / "src"
    if occupied_by == "cache":
        subject.write(base, "src", [(b"old", {"i": 1})])
    elif occupied_by == "empty folder":
        target.mkdir()
    elif occupied_by == "file":
        target.write_bytes(b"mine")
    else:
        if not subject.IS_OURS:
            pytest.skip("the public package follows the link")
        target.symlink_to(base / "nowhere")
    before = sorted(str(entry) for entry in base.rglob("*") if "tmp" not in entry.parts)
    source = CountingSource("src", ten_rows())
    results = subject.write_results(base, [source, named("good")])
    assert isinstance(results[0], drt.CacheWriteError) and str(target) in results[0].message
    assert results[1] == drt.CacheWriteSuccess("good", base / "good")
    after = sorted(str(e) for e in base.rglob("*") if "tmp" not in e.parts and "good" not in e.parts)
    assert after == before
    if occupied_by == "cache":
        assert [sample.data for sample in subject.open_dataset(target)] == [b"old"]


@pytest.mark.parametrize("wrap", [tuple, iter, lambda listed: (source for source in listed), frozenset])
def test_only_a_list_is_several_sources(base: Path, wrap: Any) -> None:
    (result,) = subject.write_results(base, wrap([named("a"), named("b")]))
    assert isinstance(result, drt.CacheWriteError) and result.source_name == "source[0]"
    if subject.IS_OURS:
        assert "pass several sources in a list" in result.message


def test_no_sources_is_no_results_and_no_folders(tmp_path: Path) -> None:
    assert subject.write_results(tmp_path / "base", []) == []
    assert not (tmp_path / "base").exists()


def test_a_path_of_bytes_is_a_type_error(base: Path) -> None:
    with pytest.raises(TypeError):
        subject.write_results(str(base).encode(), named("a"))  # type: ignore[arg-type]


def test_results_follow_the_order_of_sources_and_failures_stop_nobody(base: Path) -> None:
    written = [
        named("a"), ListSource("empty", []), named("b"), ListSource("bad", with_bad_row((None, None))), named("c")
    ]  # fmt: skip
    results = subject.write_results(base, written)
    assert [type(result).__name__ for result in results] == [
        "CacheWriteSuccess", "CacheWriteError", "CacheWriteSuccess", "CacheWriteError", "CacheWriteSuccess",
    ]  # fmt: skip
    assert [result.source_name for result in results] == ["a", "empty", "b", "bad", "c"]
    assert not (base / "empty").exists() and not (base / "bad").exists() and subject.leftovers(base) == []
    for name in "abc":
        assert subject.ids(subject.open_dataset(base / name)) == list(range(10))


def test_two_sources_of_one_name_are_refused_before_anything_is_written(base: Path) -> None:
    first, second = CountingSource("same", ten_rows()), CountingSource("same", ten_rows())
    with pytest.raises(subject.InvalidInput):
        subject.write_results(base, [named("other"), first, second])
    assert first.iterations == second.iterations == 0
    assert not (base / "same").exists() and not (base / "other").exists()


def test_nothing_is_printed_when_stderr_is_no_terminal(base: Path) -> None:
    script = """
from support import drt, sources
config = drt.api.WriterConfig()
assert config.show_progress
written = [sources.ListSource("a", sources.mini(3000)), sources.ListSource("b", sources.mini(3))]
results = drt.runtime().write_cache(written, ARGS["base"], writer_config=config)
assert [type(result).__name__ for result in results] == ["CacheWriteSuccess"] * 2
"""
    done = subprocess.run(script_command(script, {"base": str(base)}), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_source_may_read_and_write_with_the_same_runtime(base: Path, num_workers: int) -> None:
    first = subject.write(base, "first", ten_rows())
    runtime = subject.runtime(num_workers)
    dataset = runtime.cached_dataset([first], reader_config=subject.reader_config())

    def rows() -> Iterator[Any]:
        for sample in dataset:
            yield sample.data * 2, sample.metadata
        (inner,) = runtime.write_cache(named("inner"), base, writer_config=subject.writer_config())
        assert isinstance(inner, drt.CacheWriteSuccess)
        yield b"last", {"i": 99}

    (result,) = runtime.write_cache(ListSource("outer", rows()), base, writer_config=subject.writer_config())
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert [sample.data for sample in subject.open_dataset(base / "outer")] == [
        *(b"p%d" % i * 2 for i in range(10)), b"last",
    ]  # fmt: skip
    assert len(list(subject.open_dataset(base / "inner"))) == 10
