"""The programs in `examples/` run as a reader would run them, and say what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, folder: Path, *arguments: str) -> str:
    """Run an example with `folder` as the current one; returns what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{name} ended with status {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.quick
def test_quickstart_preprocesses_once_and_prints_the_same_draws_again(tmp_path: Path) -> None:
    first = run_example("quickstart.py", tmp_path).splitlines()
    second = run_example("quickstart.py", tmp_path).splitlines()
    preprocessing = [line for line in first if line.startswith("preprocessing:")]
    assert len(preprocessing) == 3
    assert second == [line for line in first if line not in preprocessing]
    drawn = second[-3:]
    expected = {
        "arrived early, works well [7, 6, 5, 4] 1",
        "broke on the first day [5, 2, 3, 5, 3] 0",
        "better than the photographs [6, 4, 3, 11] 1",
    }
    assert set(drawn) <= expected, drawn
    assert (tmp_path / "cache" / "reviews_v1" / "manifest.json").is_file()


@pytest.mark.quick
def test_quickstart_takes_the_folder_of_its_caches(tmp_path: Path) -> None:
    run_example("quickstart.py", tmp_path, "elsewhere/caches")
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "caches" / "reviews_v1").is_dir()


def test_digits_are_drawn_evenly_and_learned(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the example trains with scikit-learn")
    output = run_example("digits.py", tmp_path)
    draws = {title: [int(n) for n in counts.split(", ")] for title, counts in re.findall(r"(\w+): .* digit \[(.*)\]", output)}
    accuracy = {title: float(value) for title, value in re.findall(r"(\w+): accuracy ([\d.]+) on 360 ", output)}
    assert draws.keys() == accuracy.keys() == {"uneven", "balanced"}, output
    # 3,000 draws: about 300 of each digit, with a standard deviation of 16; uneven, the rare ones come about 104 times.
    assert sum(draws["uneven"]) == sum(draws["balanced"]) == 3_000
    assert max(draws["uneven"][5:]) < 200, output
    assert min(draws["uneven"][:5]) > 300, output
    assert all(220 < count < 380 for count in draws["balanced"]), output
    assert accuracy["balanced"] > 0.9, output
    assert accuracy["balanced"] > accuracy["uneven"], output


def test_a_network_is_trained_on_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the example takes scikit-learn's digits")
    pytest.importorskip("torch", reason="the example trains with PyTorch")
    output = run_example("torch_training.py", tmp_path)
    accuracy = [float(value) for value in re.findall(r"epoch \d: accuracy ([\d.]+) on 360 ", output)]
    assert len(accuracy) == 6, output
    assert accuracy[-1] > 0.9, output


def test_a_run_that_was_stopped_sees_the_same_in_the_same_steps(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example has a loader of PyTorch")
    output = run_example("resume.py", tmp_path)
    assert output.splitlines() == [
        "stopped after step 17 with 2 loading processes",
        "the last checkpoint is of step 15",
        "went on to step 30 with none",
        "the same numbers in the same steps as without a stop: True",
    ]


def test_two_ranks_share_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example has a process group of PyTorch")
    output = run_example("torch_distributed.py", tmp_path)
    assert output.splitlines() == [f"epoch {epoch}: 6 batches on each rank, the numbers add up to 500500" for epoch in (0, 1)]
