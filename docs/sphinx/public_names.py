"""The public names of the package as reStructuredText for autodoc, and what their docstrings leave out.

It knows nothing of Sphinx, so the tests use it too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import NamedTuple

from dataset_rt import api

FIRST_MODULES = ("_runtime", "_dataset", "_sample", "_source", "_config", "_results")
"""Modules whose names the reference shows first. Others follow in the order of `api`, the exceptions last."""

SHOWN_SPECIAL_METHODS = {"__init__", "__iter__", "__len__", "__getitem__", "__enter__", "__exit__"}

SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes):$", re.MULTILINE)
ENTRY = re.compile(r"^    (\*{0,2}\w+): ", re.MULTILINE)


class PublicName(NamedTuple):
    """A name of `api.__all__`: the module that it comes from, what it stands for, and its documentation ("" if none)."""

    name: str
    module: str
    value: object
    doc: str


def home_of(name: str) -> str:
    """The module below `dataset_rt` that defines a public name."""
    return str(api._HOME_OF[name])


def public_names() -> list[PublicName]:
    """Every name of `api.__all__`, in the order of the reference."""
    homes = list(dict.fromkeys(home_of(name) for name in sorted(api.__all__, key=list(api._HOME_OF).index)))
    middle = [home for home in homes if home not in FIRST_MODULES and home != "exceptions"]
    found = []
    for home in (*FIRST_MODULES, *middle, "exceptions"):
        module = importlib.import_module(f"dataset_rt.{home}")
        assigned = assignments(module)
        names = [name for name in api._HOME_OF if home_of(name) == home and name in api.__all__]
        # In the order of the source: what is written to be read first comes first.
        source = inspect.getsource(module)
        names.sort(key=lambda name, source=source: _place(name, source))
        for name in names:
            value = getattr(module, name)
            if isinstance(value, (type, FunctionType)):
                doc = (value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__) or ""
            else:
                doc = assigned.get(name, ("", ""))[1]
            if doc.startswith(f"{name}("):  # what named tuples and dataclasses say when nobody says anything
                doc = ""
            found.append(PublicName(name, home, value, inspect.cleandoc(doc)))
    return found


def _place(name: str, source: str) -> int:
    found = re.search(rf"^(?:(?:class|def) {name}\b|{name}\b *[:=])", source, re.MULTILINE)
    return found.start() if found else len(source)


def assignments(module: ModuleType) -> dict[str, tuple[str, str]]:
    """What a module assigns at its top level: name to the expression, and the string that stands below it ("" if none)."""
    body = ast.parse(inspect.getsource(module)).body
    found = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target: ast.expr = statement.target
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        else:
            continue
        assert statement.value is not None
        match following:
            case ast.Expr(value=ast.Constant(value=str(doc))):
                pass
            case _:
                doc = ""
        if isinstance(target, ast.Name):
            found[target.id] = (ast.unparse(statement.value), doc)
    return found


def own_methods(cls: type) -> Iterator[tuple[str, FunctionType | property]]:
    """The public methods and properties that a class itself defines, in their order; the special ones if they are documented."""
    for name, value in vars(cls).items():
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not isinstance(function, (FunctionType, property)):
            continue
        if name in SHOWN_SPECIAL_METHODS:
            if function.__doc__ and not (isinstance(function, FunctionType) and function.__module__ != _source_module(cls)):
                yield name, function
        elif not name.startswith("_"):
            yield name, function


def _source_module(cls: type) -> str:
    return f"dataset_rt.{home_of(cls.__name__)}"


def fields(cls: type) -> list[str]:
    """The fields of a named tuple, dataclass, configuration model or protocol."""
    named = getattr(cls, "_fields", None)
    if named is not None:
        return list(named)
    return [name for name in inspect.get_annotations(cls) if not name.startswith("_") and name != "model_config"]


def sections(doc: str) -> dict[str, str]:
    """A Google-style docstring, cleaned, cut into its sections; the text before them is under ""."""
    parts = SECTION.split(doc)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(section: str) -> set[str]:
    """The names that a section explains."""
    return {name.lstrip("*") for name in ENTRY.findall(section)}


def raised_in(function: Callable[..., object]) -> set[str]:
    """The exceptions that a function raises, by name: itself, and in the private helpers of its module that it calls."""
    module = inspect.getmodule(function)
    found: set[str] = set()
    waiting, seen = [function], set()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(here)))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)) if name[0].isupper():
                    found.add(name)
                case ast.Call(func=ast.Name(id=name)) if name.startswith("_"):
                    helper = getattr(module, name, None)
                    if isinstance(helper, FunctionType):
                        waiting.append(helper)
    return found


def gaps() -> list[str]:
    """What the docstrings of the public names leave out, one sentence each."""
    found = []
    for public in public_names():
        label = f"dataset_rt.{public.name}"
        if not public.doc:
            found.append(f"{label} has no docstring")
            continue
        if isinstance(public.value, FunctionType):
            found += method_gaps(label, public.value)
        if not isinstance(public.value, type):
            continue
        told = entries(sections(public.doc).get("Attributes", ""))
        left_out = [name for name in fields(public.value) if name not in told]
        found += [f"{label}: the docstring leaves out the attribute {name!r}" for name in left_out]
        for name, method in own_methods(public.value):
            found += method_gaps(f"{label}.{name}", method)
    return found


def method_gaps(label: str, method: FunctionType | property) -> list[str]:
    """What the docstring of a method or property leaves out."""
    doc = inspect.cleandoc(method.__doc__ or "")
    if not doc:
        return [f"{label} has no docstring"]
    function = method.fget if isinstance(method, property) else method
    assert function is not None
    told = sections(doc)
    explained = entries(told.get("Args", ""))
    parameters = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]
    found = [f"{label}: the docstring leaves out the parameter {name!r}" for name in parameters if name not in explained]
    found += [f"{label}: the docstring explains {name!r}, which is no parameter" for name in sorted(explained - set(parameters))]
    listed = entries(told.get("Raises", ""))
    found += [f"{label}: the docstring leaves out that it raises {name}" for name in sorted(raised_in(function) - listed)]
    return found


def as_rst() -> str:
    """The body of the reference: a section per module, an entry per public name."""
    lines = []
    module = ""
    for public in public_names():
        if public.module != module:
            module = public.module
            title = module.lstrip("_").capitalize()
            intro = inspect.cleandoc(importlib.import_module(f"dataset_rt.{module}").__doc__ or "")
            lines += ["", title, "=" * len(title), "", intro, ""]
        if isinstance(public.value, type):
            lines += ["", f".. autoclass:: {public.name}", ""]
            if issubclass(public.value, BaseException):
                lines[-1:] = ["   :show-inheritance:", ""]
            for name, method in own_methods(public.value):
                kind = "property" if isinstance(method, property) else "method"
                lines += [f"   .. auto{kind}:: {name}", ""]
        elif isinstance(public.value, FunctionType):
            lines += ["", f".. autofunction:: {public.name}", ""]
        else:
            expression, _ = assignments(importlib.import_module(f"dataset_rt.{module}"))[public.name]
            lines += ["", f".. py:data:: {public.name}", f"   :value: {' '.join(expression.split())}", ""]
            lines += [f"   {line}" for line in public.doc.splitlines()]
    return "\n".join(lines) + "\n"
