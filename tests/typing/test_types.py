"""Type checkers agree with what the files of this folder say of the public API, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}

pytestmark = [pytest.mark.slow, pytest.mark.ours]


def check(checker: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker with the project's settings; skip where it cannot run."""
    here = subprocess.run([sys.executable, "-m", checker, "--version"], capture_output=True, text=True, check=False)
    if here.returncode != 0:
        pytest.skip(f"{checker} is not here: {(here.stderr or here.stdout).strip().splitlines()[-1:]}")
    command = [sys.executable, *CHECKERS[checker], *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_public_types_are_what_they_are_said_to_be(checker: str) -> None:
    found = check(checker, *(each for each in sorted(FOLDER.glob("*.py")) if not each.name.startswith("test_")))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_wrong_claim_is_noticed(checker: str, tmp_path: Path) -> None:
    claim = tmp_path / "claim.py"
    claim.write_text(
        "import dataset_rt as drt\n"
        "from typing_extensions import assert_type\n"
        "def wrong(dataset: drt.CachedDataset) -> None:\n"
        "    assert_type(dataset.get_item(0, 0), drt.CacheInput)\n"
        "    drt.ReaderConfig(seed=0)  # type: ignore[call-arg]\n"
    )
    if checker == "pyright":
        claim.write_text(f"# pyright: reportUnnecessaryTypeIgnoreComment=true\n{claim.read_text()}")
    found = check(checker, claim)
    assert found.returncode == 1, found.stdout + found.stderr
    assert found.stdout.count("error:") == 2, found.stdout
