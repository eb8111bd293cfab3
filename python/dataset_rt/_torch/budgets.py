"""How many loading processes and native threads a training process may have, when the caller does not say."""

from __future__ import annotations

import os
import warnings
from pathlib import Path, PurePosixPath

from dataset_rt._native import cpu_budget as native_cpu_budget

MAX_AUTO_WORKERS = 4
MAX_AUTO_THREADS = 4


def cpu_budget(root: Path = Path("/")) -> int:
    """Processors that this process may use, at least 1.

    Those it may run on (its affinity, which the kernel keeps within the CPU sets of its control groups), and no more than the
    quotas of its control groups and all above them pay for, rounded down. With a limit that cannot be read it is 1, and a warning
    says so.

    Args:
        root: Where `/proc` and `/sys` are looked for.
    """
    unreadable = _unreadable_limit(root)
    if unreadable is None:
        return native_cpu_budget()
    warnings.warn(
        f"the limit in {unreadable} cannot be read, so one CPU is assumed; set num_workers and native_num_workers to say better",
        stacklevel=2,
    )
    return 1


def local_ranks(world_size: int) -> int:
    """Training processes on this host: what the launcher says in `LOCAL_WORLD_SIZE`, else all there are."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    if text:
        warnings.warn(f"LOCAL_WORLD_SIZE={text!r} is no number of processes and is not used", stacklevel=2)
    return max(1, world_size)


def auto_workers(cpus: int, ranks: int) -> int:
    """Loading processes of one training process: its share of the processors less one for itself, up to four."""
    return min(MAX_AUTO_WORKERS, max(0, cpus // ranks - 1))


def auto_threads(cpus: int, ranks: int, num_workers: int) -> int:
    """Native threads of one consumer: its share of the processors, one to four."""
    return max(1, min(MAX_AUTO_THREADS, cpus // (max(1, num_workers) * ranks)))


def _unreadable_limit(root: Path) -> Path | None:
    """A quota that is there but is no quota to us. What `native_cpu_budget` skips in silence is found here."""
    membership = root / "proc/self/cgroup"
    try:
        lines = membership.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return membership
    groups = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            mounts, names = [groups], ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mounts, names = [groups / controllers, groups / "cpu"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        inner = PurePosixPath(group.lstrip("/"))
        for folder in (mount / part for mount in mounts for part in (inner, *inner.parents)):
            for name in names:
                if not _is_quota(folder / name):
                    return folder / name
    return None


def _is_quota(path: Path) -> bool:
    """Is this what the kernel writes: numbers, or `max`? A file that is not there limits nothing."""
    try:
        words = path.read_text("utf-8").split()
        return bool(words) and all(word == "max" or int(word) >= -1 for word in words)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
