"""Sources that spawned processes can import, and what they may do half-way: die, hang, tell that they are there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .sources import Sample, mini

#: Spawned processes import this module anew; forked ones would see what a test has put here.
TOUCHED: list[str] = []


class Acting:
    """Some samples of `mini`; before sample `at` it calls a function with arguments."""

    def __init__(self, name: Any, call: Callable[..., Any] | None = None, *args: Any, n: int = 10, at: int = 3) -> None:
        self.name = name
        self.call = call
        self.args = args
        self.n = n
        self.at = at

    def __iter__(self) -> Iterator[Sample]:
        for i, sample in enumerate(mini(self.n)):
            if i == self.at and self.call is not None:
                self.call(*self.args)
            yield sample


class Loud(Acting):
    """A source that calls its function when it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.call is not None:
            self.call(*self.args)


class Unpicklable(Acting):
    """A source that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this one stays at home")


class Unshippable(Exception):
    """An exception that can be pickled and not unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail(error: BaseException) -> None:
    raise error


def wait_and_fail(path: Path, error: BaseException) -> None:
    wait_for(path)
    raise error


def fail_because(error: Exception, cause: Exception) -> None:
    raise error from cause


def fail_unshippably() -> None:
    raise Unshippable(1, 2)


def announce(folder: Path, name: str) -> None:
    """Leave this process's id in a file, in one step."""
    (folder / f".{name}").write_text(str(os.getpid()))
    (folder / f".{name}").rename(folder / name)


def announce_and_sleep(folder: Path, name: str, seconds: float = 1000.0) -> None:
    announce(folder, name)
    time.sleep(seconds)


def announce_and_wait_for(folder: Path, name: str, other: str) -> None:
    announce(folder, name)
    wait_for(folder / other)


def announce_and_hang(folder: Path, name: str) -> None:
    """Hang in a way that only SIGKILL ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce_and_sleep(folder, name)


def leave_a_thread_behind() -> None:
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()


def fork_and_die(folder: Path, name: str) -> None:
    """Die, and leave a child that has all open files of this process."""
    if os.fork() == 0:
        announce_and_sleep(folder, name)
        os._exit(0)
    wait_for(folder / name)
    os.kill(os.getpid(), signal.SIGKILL)


def say(stdout: bytes, stderr: bytes) -> None:
    os.write(1, stdout)
    os.write(2, stderr)


def read_all(path: Path, count: int) -> None:
    from . import drt

    assert len(list(drt.open_dataset(path, validate=True))) == count


def write_in_processes(base: Path) -> None:
    from . import drt

    results = drt.write_results(base, [Acting("inner-a"), Acting("inner-b")], num_processes=2)
    assert all(isinstance(result, drt.api.CacheWriteSuccess) for result in results), results


def check_is_spawned() -> None:
    assert not TOUCHED, "this process was forked"


def check_pool_threads(count: int) -> None:
    """Look for the pool's threads; one that has just been started has no name yet."""
    names: list[str] = []
    for _ in range(500):
        names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        if sum(name.startswith("drt-worker-") for name in names) >= count:
            break
        time.sleep(0.01)
    assert sorted(name for name in names if name.startswith("drt-")) == [f"drt-worker-{n}" for n in range(count)], names


def wait_for(path: Path, seconds: float = 80.0) -> str:
    """Wait until a file is there; returns what is in it."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path} after {seconds} s"
        time.sleep(0.01)
    return path.read_text()


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def is_there(pid: int) -> bool:
    """Whether a process is there, be it a zombie that nobody has waited for."""
    return Path(f"/proc/{pid}").exists()
