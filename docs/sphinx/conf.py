"""How `make docs` builds the site: the Markdown pages where they stand, and a reference made from docstrings.

The source folder is the checkout, so that a link which works in the repository works in the site, and one which does not is a
warning. Every warning fails the build.
"""

# ruff: noqa: PLR0917 (Sphinx calls its listeners with positions)

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import public_names  # noqa: E402

project = "DatasetRT"
copyright = "the DatasetRT authors, MIT license"
html_title = "DatasetRT"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**",
    "crates/*/README.md",
    "tests/README.md",
    "tests/contract.md",
    "tests/golden/README.md",
    "benchmarks/README.md",
]
# What the search for pages need not walk through.
exclude_patterns = [".*", "target", "site", "dist", "fuzz", "python", "examples", "crates/*/[!R]*", "docs/sphinx"]

nitpicky = True
nitpick_ignore_regex = [
    # Other people's names: there is no inventory of theirs to look them up in.
    ("py:.*", r"(pl|polars|pathlib|os|collections|typing|typing_extensions|pydantic|annotated_types|types)\..*"),
    ("py:class", r"Path|Iterable|Iterator|Mapping|Sequence|NamedTuple|Self|Protocol"),
    ("py:class", r"(dataset_rt\.\w+\.)?[A-Z](_co)?"),  # type variables
    # Aliases of what a signature says anyway, and classes that only exist where torch is: what makes them describes them.
    (
        "py:class",
        r"(dataset_rt\.\w+\.)?"
        r"(Blend|Buffer|DatasetLoader|(Mixed)?LoaderOptions|Mixed(Iterator|Loader|Samples|TorchDataset)|Order|Samples)",
    ),
]
myst_heading_anchors = 4
smartquotes_action = "D"  # dashes; quotes stay as they are written
default_role = "docstring-code"

autodoc_class_signature = "mixed"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = True
python_maximum_signature_line_length = 88

log = logging.getLogger(__name__)

BULLET = re.compile(r"^(?:-|\d+\.) \[[^\]]*\]\((?P<path>[^)#]+)\)")
INTERNAL_MODULE = re.compile(r"\bdataset_rt\.(?:api|exceptions|_\w+)\.")
SOURCE_PAGE = re.compile(r"\b(?P<page>docs/[\w/-]+)\.md\b")
LIMITS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def contents(text: str) -> str:
    """The side bar: the sections of docs/README.md as captions, the first link of each bullet as an entry."""
    lines = ["", "```{toctree}", ":hidden:", "", "All documents </docs/README>"]
    for line in text.splitlines():
        if line.startswith("## "):
            lines += ["```", "", "```{toctree}", ":hidden:", f":caption: {line[3:]}", ""]
        elif bullet := BULLET.match(line):
            target = (ROOT / "docs" / bullet["path"]).resolve().relative_to(ROOT)
            lines.append("/" + str(target.with_suffix("")))
    return "\n".join([*lines, "```", ""])


def complete_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page what it has in the site only, and take away what only rustdoc understands."""
    if docname == root_doc:
        source[0] += contents((ROOT / "docs/README.md").read_text("utf-8"))
    elif docname == "docs/reference/api":
        source[0] += public_names.as_rst()
    elif docname.startswith("crates/"):
        source[0] = re.sub(r"^# .*[;>\]]$\n|^#$\n", "", source[0], flags=re.MULTILINE)  # hidden lines of examples
        source[0] = re.sub(r"^```rust,.*$", "```rust", source[0], flags=re.MULTILINE)


def simplify_signature(app: Sphinx, what: str, name: str, value: object, options: object, signature: str | None, result: str):
    """Leave out how protocols and exceptions are made, which is nobody's task, and how pydantic keeps a range."""
    if isinstance(value, type) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return "", None
    if signature:
        signature = re.sub(r"(?:typing\.)?Annotated\[(\w+), [^\]]*\]", r"\1", signature).replace("PosixPath(", "Path(")
    return signature, result


def complete_docstring(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Add the ranges of a configuration's fields, link the pages that are given as source, and use public names for types."""
    for field, info in getattr(value, "model_fields", {}).items():
        limits = list(accepted(info.metadata))
        heading = f".. attribute:: {field}"
        if limits and heading in lines:
            at = lines.index(heading) + 1
            while at < len(lines) and not lines[at].startswith(".. attribute::"):
                at += 1
            lines[at:at] = [f"   Accepted: {' and '.join(limits)}.", ""]
    lines[:] = [INTERNAL_MODULE.sub("", SOURCE_PAGE.sub(r":doc:`\g<page> </\g<page>>`", line)) for line in lines]


def accepted(metadata: list[object]) -> Iterator[str]:
    """The limits that pydantic holds for a field, as a reader would write them."""
    for part in metadata:
        for kind, sign in LIMITS.items():
            if (limit := getattr(part, kind, None)) is not None:
                yield f"{sign} {limit}"


def docstring_code(name, rawtext, text, lineno, inliner, options=None, content=None):
    """What stands between single backticks in a docstring: code, and a link where it names something of ours."""
    code = nodes.literal(rawtext, text)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", text):
        return [code], []
    context = inliner.document.settings.env.ref_context
    link = addnodes.pending_xref(rawtext, code, refdomain="py", reftype="obj", reftarget=text, refexplicit=True, refwarn=False)
    link["py:module"], link["py:class"] = context.get("py:module"), context.get("py:class")
    return [link], []


def find_reference(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Find a public name that is asked for by the module that defines it; code that names nothing stays code."""
    target = node.get("reftarget", "")
    public = INTERNAL_MODULE.sub("dataset_rt.", target)
    if public != target:
        domain = env.domains["py"]
        return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], public, node, text)
    return text if node.get("reftype") == "obj" else None


def finish(app: Sphinx, problem: Exception | None) -> None:
    """Warn of what the reference lacks, and lead from `index.html` to the first page."""
    if problem is not None or app.builder.format != "html":
        return
    for gap in public_names.gaps():
        log.warning("%s", gap, type="docstrings")
    described = {entry[0] for entry in app.env.domains["py"].get_objects()}
    for public in public_names.public_names():
        if f"dataset_rt.{public.name}" not in described:
            log.warning("dataset_rt.%s is not in the reference", public.name, type="docstrings")
    (Path(app.outdir) / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>{html_title}</title>'
        '<meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">DatasetRT</a>\n',
        "utf-8",
    )


def setup(app: Sphinx) -> None:
    """Register the listeners above."""
    app.add_role("docstring-code", docstring_code)
    app.connect("source-read", complete_page)
    app.connect("autodoc-process-signature", simplify_signature)
    app.connect("autodoc-process-docstring", complete_docstring, priority=900)  # after napoleon
    app.connect("missing-reference", find_reference)
    app.connect("build-finished", finish)
