"""`tests/contract.md` names tests that exist, and every promise in it has one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "contract.md"

ROW = re.compile(r"^\| (?P<number>\d+\.\d+) \| (?P<promise>.+?) \| (?P<tests>.*) \|$")
TESTS_IN = re.compile(r"Tests in `(?P<file>[^`]+)`\.")

pytestmark = pytest.mark.quick


class Promise(NamedTuple):
    """One row of the page: its number, its words, and its tests as (file, name)."""

    number: str
    words: str
    tests: list[tuple[str, str]]


def promises(text: str) -> list[Promise]:
    """The rows of all tables of the page.

    Raises:
        ValueError: A line of a table is neither a row nor the table's head.
    """
    found: list[Promise] = []
    file = ""
    for line in text.splitlines():
        if line.startswith("## "):
            file = ""
        elif section := TESTS_IN.search(line):
            file = section["file"]
        elif row := ROW.match(line):
            named = [re.fullmatch(r"`(?:([^`:]+)::)?(\w+)`", each) for each in row["tests"].split(", ")]
            found.append(Promise(row["number"], row["promise"], [(test[1] or file, test[2]) for test in named if test]))
            if None in named:
                raise ValueError(f"{row['number']}: tests are names in backticks with commas between them")
        elif line.startswith("|") and line not in ("| no. | promise | tests |", "| --- | --- | --- |"):
            raise ValueError(f"no row of the contract: {line}")
    return found


def names_in(file: str) -> set[str]:
    """Names of the tests in a file, given as the page does: below `tests/`, or a Rust file below `crates/`."""
    path = ROOT / file if file.startswith("crates/") else ROOT / "tests" / file
    if not path.is_file():
        return set()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return set(re.findall(r"#\[test\]\s+fn (\w+)", text))
    names = set()
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return {name for name in names if name.lower().startswith("test")}


def missing(text: str) -> list[str]:
    """Tests that the page names and that do not exist."""
    return [
        f"{promise.number}: {file}::{name}"
        for promise in promises(text)
        for file, name in promise.tests
        if name not in names_in(file)
    ]


def test_every_test_of_the_contract_exists() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_every_promise_has_tests_and_a_number_of_its_own() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.MULTILINE)]
    assert sections == list(range(1, len(sections) + 1))
    rows = promises(text)
    lengths = Counter(int(row.number.partition(".")[0]) for row in rows)
    assert [row.number for row in rows] == [f"{section}.{at}" for section in sections for at in range(1, lengths[section] + 1)]
    assert all(row.words and row.tests for row in rows)


HEAD = "## 1. Topic\n\nTests in `docs/test_contract.py`.\n\n| no. | promise | tests |\n| --- | --- | --- |\n"


def test_a_test_that_is_not_there_is_reported() -> None:
    good = "| 1.1 | something | `test_a_test_that_is_not_there_is_reported`, `unit/test_config.py::test_defaults` |\n"
    assert missing(HEAD + good) == []
    renamed = good.replace("test_defaults", "test_others")
    assert missing(HEAD + renamed) == ["1.1: unit/test_config.py::test_others"]
    assert missing(HEAD + good.replace("unit/", "unitt/")) == ["1.1: unitt/test_config.py::test_defaults"]
    vectors = "crates/drt-sampler/tests/vectors.rs"
    rust = f"| 1.2 | other | `{vectors}::draws_are_as_published`, `{vectors}::plan` |\n"
    assert missing(HEAD + rust) == [f"1.2: {vectors}::plan"]  # a helper is no test


@pytest.mark.parametrize("row", ["| 1.1 | something |", "| 1.1 | something | test_config |", "| 1.1 | something | |"])
def test_a_row_that_cannot_be_read_is_refused(row: str) -> None:
    with pytest.raises(ValueError):
        promises(HEAD + row)
