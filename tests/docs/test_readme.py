"""Every Python block of README.md, of the pages in docs/ and of the crates' READMEs runs.

The blocks of one page run in order, in one namespace, in a child process whose current folder is empty. A block behind an HTML
comment `<!-- not run: reason -->` is left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "crates").glob("*/README.md")])

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<language>[\w+-]*).*$")
NOT_RUN = re.compile(r"^\s*<!--\s*not run:\s*(?P<reason>.*?)\s*-->\s*$")

# Line numbers in a traceback are the page's own: each block is moved down to where it stands.
RUNNER = """
import json, sys
for page, first_line, code in json.loads(sys.stdin.read()):
    exec(compile("\\n" * (first_line - 1) + code, page, "exec"), globals())
"""


class Block(NamedTuple):
    """A fenced Python block: the number of its first line of code, the code, and why it is not run (None: it is)."""

    first_line: int
    code: str
    not_run: str | None


def python_blocks(text: str) -> list[Block]:
    """Find the Python blocks of a Markdown page.

    Raises:
        ValueError: A fence is not closed, or a comment excuses a block without a reason or with no block behind it.
    """
    blocks: list[Block] = []
    lines = text.splitlines()
    at = 0
    excuse: str | None = None
    while at < len(lines):
        line = lines[at]
        at += 1
        if comment := NOT_RUN.match(line):
            excuse = comment["reason"]
            if not excuse:
                raise ValueError(f"line {at}: 'not run' needs a reason")
            continue
        fence = FENCE.match(line)
        if fence is None:
            if excuse is not None and line.strip():
                raise ValueError(f"line {at}: the comment 'not run: {excuse}' must stand right before a block")
            continue
        first = at
        closing = re.compile(rf" *{re.escape(fence['ticks'][0])}{{{len(fence['ticks'])},}} *")
        while at < len(lines) and not closing.fullmatch(lines[at]):
            at += 1
        if at == len(lines):
            raise ValueError(f"line {first}: this fence is not closed")
        if fence["language"] in {"python", "py"}:
            indent = len(fence["indent"])
            code = "".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] + "\n" for line in lines[first:at])
            blocks.append(Block(first + 1, code, excuse))
        at += 1
        excuse = None
    return blocks


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's blocks in `folder`."""
    blocks = python_blocks(page.read_text("utf-8"))
    work = [(str(page), block.first_line, block.code) for block in blocks if block.not_run is None]
    command = [sys.executable, "-c", RUNNER]
    return subprocess.run(command, input=json.dumps(work), cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.ours
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    if page.name == "pytorch.md":
        pytest.importorskip("torch", reason="the page is about PyTorch")
    done = run_page(page, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"


@pytest.mark.ours
def test_the_script_with_processes_runs_as_a_script(tmp_path: Path) -> None:
    blocks = python_blocks((ROOT / "docs" / "guides" / "caching.md").read_text("utf-8"))
    (script,) = [block.code for block in blocks if block.not_run is not None and "a script of its own" in block.not_run]
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "4000\n"), done.stderr
    assert done.stderr.count("dataset-rt: numbers_") == 4, done.stderr


def test_a_failing_block_is_reported_with_its_line_in_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\nx = 1\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n")
    done = run_page(page, tmp_path)
    assert done.returncode == 1
    assert f'File "{page}", line 9' in done.stderr


def test_blocks_are_found_by_language_and_left_out_with_a_reason() -> None:
    text = "\n".join(
        [
            "```",
            "plain",
            "```",
            "<!-- not run: needs a GPU -->",
            "",
            "```python",
            "a",
            "```",
            "~~~~py title=x",
            "~~~",
            "b",
            "~~~~",
            "- in a list",
            "  ```python",
            "  if c:",
            "",
            "      d",
            "  ```",
            "```rust",
            "<!-- not run: text of a block -->",
            "```",
        ]
    )
    assert python_blocks(text) == [
        Block(7, "a\n", "needs a GPU"),
        Block(10, "~~~\nb\n", None),
        Block(15, "if c:\n\n    d\n", None),
    ]


@pytest.mark.parametrize("text", ["```python\nx\n", "<!-- not run: -->\n```python\n```\n", "<!-- not run: old -->\ntext\n"])
def test_pages_that_would_hide_a_block_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        python_blocks(text)
