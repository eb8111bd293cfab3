"""Build, once, the interpreter that runs the public package: our oracle.

The oracle is `dataset-rt==0.4.8` as published, used as a black box. It has the same import name as the library
under test, so it lives in a virtual environment of its own below the user's cache folder, and tests talk to it
through `oracle_driver.py`. A finished environment is reused; an unfinished one is built again.

    python tests/oracle/make_env.py            # build if needed, print the interpreter's path
    python tests/oracle/make_env.py --rebuild  # throw the old one away first

Uses `uv` when it is on PATH, else `venv` and `pip`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.4.8"
REQUIREMENTS = (f"dataset-rt=={VERSION}", "polars", "pyarrow")
READY_FILE = "drt-oracle-ready.txt"


class OracleUnavailable(RuntimeError):
    """The environment could not be built; the text holds the tool's last lines."""


def env_dir(torch: bool = False) -> Path:
    """Folder of the environment, with or without PyTorch, whether it exists or not."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "dataset-rt" / f"oracle-{VERSION}{'-torch' if torch else ''}"


def interpreter(folder: Path) -> Path:
    """Python executable inside an environment."""
    return folder / "bin" / "python"


def is_ready(folder: Path, requirements: tuple[str, ...]) -> bool:
    """True when the environment was finished for these requirements and its interpreter still runs."""
    marker = folder / READY_FILE
    if not marker.is_file() or marker.read_text().split() != list(requirements):
        return False
    try:
        probe = subprocess.run(
            [interpreter(folder), "-c", "import dataset_rt, polars, pyarrow"], capture_output=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return probe.returncode == 0


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise OracleUnavailable(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def build(folder: Path, requirements: tuple[str, ...]) -> None:
    """Create the environment in `folder`, which must not exist."""
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--python", str(interpreter(folder)), *requirements])
    else:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(interpreter(folder)), "-m", "pip", "install", "--quiet", *requirements])
    (folder / READY_FILE).write_text("\n".join(requirements))


def ensure_env(rebuild: bool = False, torch: bool = False) -> Path:
    """Return the oracle's interpreter, building its environment when there is none.

    Args:
        rebuild: Build it anew.
        torch: With PyTorch, in an environment of its own: three gigabytes that the other tests do not need.

    Raises:
        OracleUnavailable: The packages could not be installed.
    """
    folder, requirements = env_dir(torch), (*REQUIREMENTS, "torch") if torch else REQUIREMENTS
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may start at the same moment
        if rebuild or not is_ready(folder, requirements):
            shutil.rmtree(folder, ignore_errors=True)
            build(folder, requirements)
    return interpreter(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rebuild", action="store_true")
    print(ensure_env(rebuild=parser.parse_args().rebuild))
