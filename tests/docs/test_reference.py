"""The reference has every public name, and the docstrings behind it leave nothing out.

`make docs` builds the pages; what it takes from the docstrings is judged here without Sphinx.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from dataset_rt import api
from dataset_rt.exceptions import InvalidInputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def public_names() -> ModuleType:
    """The module that `make docs` finds the public names with."""
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "docs/sphinx/public_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("public_names", module)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name_once(public_names: ModuleType) -> None:
    entries = re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: (\w+)$", public_names.as_rst(), re.MULTILINE)
    assert sorted(entries) == sorted(api.__all__)


def test_the_reference_has_every_public_method(public_names: ModuleType) -> None:
    body = public_names.as_rst()
    for name in api.__all__:
        value = getattr(api, name)
        if isinstance(value, type) and not hasattr(value, "_fields"):
            for method in (m for m, v in vars(value).items() if not m.startswith("_") and callable(v)):
                assert f"   .. automethod:: {method}\n" in body, f"{name}.{method}"


def test_docstrings_leave_nothing_out(public_names: ModuleType) -> None:
    assert public_names.gaps() == []


class Sloppy(NamedTuple):
    """A sample of what goes wrong."""

    field: int

    def undocumented(self) -> None: ...

    def forgets(self, told: int, forgotten: int) -> None:
        """Do something.

        Args:
            told: A number.
            gone: It was here once.

        Raises:
            TypeError: Never.
        """
        if told:
            raise ValueError("told")
        _refuse_all()

    def complete(self, told: int) -> None:
        """Do something.

        Args:
            told: A number,
                over two lines: with a colon.

        Raises:
            InvalidInputError: Always.
        """
        _refuse_all()

    @property
    def silent(self) -> int:
        return 0


def _refuse_all() -> None:
    raise InvalidInputError("no")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("undocumented", ["x has no docstring"]),
        ("silent", ["x has no docstring"]),
        (
            "forgets",
            [
                "x: the docstring leaves out the parameter 'forgotten'",
                "x: the docstring explains 'gone', which is no parameter",
                "x: the docstring leaves out that it raises InvalidInputError",
                "x: the docstring leaves out that it raises ValueError",
            ],
        ),
        ("complete", []),
    ],
)
def test_what_a_docstring_leaves_out_is_noticed(public_names: ModuleType, method: str, expected: list[str]) -> None:
    assert public_names.method_gaps("x", vars(Sloppy)[method]) == expected


def test_a_name_without_docstring_or_fields_is_noticed(public_names: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        public_names.PublicName("Sloppy", "_sample", Sloppy, "A sample."),
        public_names.PublicName("NOTHING", "_sample", 0, ""),
    ]
    monkeypatch.setattr(public_names, "public_names", lambda: names)
    monkeypatch.setattr(public_names, "own_methods", lambda cls: [])
    assert public_names.gaps() == [
        "dataset_rt.Sloppy: the docstring leaves out the attribute 'field'",
        "dataset_rt.NOTHING has no docstring",
    ]
