"""Sources written by spawned processes, under supervision.

Every source has a process of its own, and at most a fixed number of them live at a time. What crosses the pipe between the two
is the pickled source and, at the end, what became of it. Payloads never do: the child writes the cache itself.

```text
parent                            child
pickle the source, spawn ──────►  import the main module
                         ◄──────  ready
send the source          ──────►  unpickle it, write it with a runtime of its own
                         ◄──────  written, failed, or raised
wait for its end         ◄──────  exit
```

A child that dies, hangs, or says nothing costs its own source only. A child whose parent is gone notices that the pipe is
closed, and ends.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from dataset_rt._native import WriteProfile, sweep
from dataset_rt.exceptions import DatasetRTError, InvalidInputError, SourceError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from dataset_rt._native import Runtime
    from dataset_rt._profile import StageRow
    from dataset_rt._profile import WriteProfile as CallProfile
    from dataset_rt._results import CacheWriteResult
    from dataset_rt._runtime import WriteJob, WriteOptions

    Pipe: TypeAlias = Connection[Any, Any]

READY = b"ready"

LOOK_EVERY_SECONDS = 0.5
"""How often a child's end is looked for. A process that the source forked may hold the pipe open, so waiting is not enough."""

PARENT_LOOK_EVERY_SECONDS = 1.0
"""How often a child looks whether its parent is still there, for the same reason."""

STOP_SECONDS = 5.0
"""From asking a child to stop, so that it can clean up, to killing it."""

ABORT_SECONDS = 0.5
"""The same, when the whole call is being left."""

EXIT_SECONDS = 10.0
"""From a child's last word to asking it to stop: threads and exit handlers of the source may still be at work."""

MAX_EXCEPTION_BYTES = 1 << 20
"""A pickled exception that is longer travels as text."""


# ------------------------------------------------------------------------------------------------ exceptions between processes


class PackedException(NamedTuple):
    """An exception on its way to another process.

    Attributes:
        pickled: The exception, if it can be pickled and unpickled.
        module, qualname: Its type.
        builtin: The first of its builtin base classes that decides how it is handled.
        text: What `str` says of it.
        traceback: The formatted traceback, without causes.
        link: How the next one of the chain belongs to this one.
    """

    pickled: bytes | None
    module: str
    qualname: str
    builtin: Literal["SystemExit", "KeyboardInterrupt", "Exception", "BaseException"]
    text: str
    traceback: str
    link: Literal["cause", "context", "none"]


def pack_exception(error: BaseException) -> list[PackedException]:
    """Pack an exception, its cause, the cause of that, and so on."""
    chain: list[PackedException] = []
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        current = following
        seen.add(id(current))
        link: Literal["cause", "context", "none"] = "none"
        following = None
        if current.__cause__ is not None:
            link, following = "cause", current.__cause__
        elif current.__context__ is not None and not current.__suppress_context__:
            link, following = "context", current.__context__
        chain.append(_pack_one(current, link))
    return chain


def _pack_one(error: BaseException, link: Literal["cause", "context", "none"]) -> PackedException:
    kind = type(error)
    builtin: Literal["SystemExit", "KeyboardInterrupt", "Exception", "BaseException"] = "BaseException"
    if isinstance(error, SystemExit):
        builtin = "SystemExit"
    elif isinstance(error, KeyboardInterrupt):
        builtin = "KeyboardInterrupt"
    elif isinstance(error, Exception):
        builtin = "Exception"
    try:
        text = str(error)
    except Exception:
        text = "<no text: __str__ raised>"
    formatted = "".join(traceback.format_exception(kind, error, error.__traceback__, chain=False))
    return PackedException(_pickle_exception(error), kind.__module__, kind.__qualname__, builtin, text, formatted, link)


def _pickle_exception(error: BaseException) -> bytes | None:
    """Pickle an exception, and see that it can be unpickled: many cannot, such as those whose `__init__` takes more."""
    try:
        pickled = pickle.dumps(error)
        if len(pickled) <= MAX_EXCEPTION_BYTES and type(pickle.loads(pickled)) is type(error):
            return pickled
    except Exception:  # what is somebody else's class may raise anything here; its stand-in tells of it all the same
        pass
    return None


def unpack_exception(chain: Sequence[PackedException]) -> BaseException:
    """Make an exception and its causes again. Their tracebacks, as text, are notes of theirs."""
    following: BaseException | None = None
    for packed in reversed(chain):
        error = _unpack_one(packed)
        if packed.link == "cause":
            error.__cause__ = following
        elif packed.link == "context":
            error.__context__ = following
        note = f"Raised in the process that wrote the source:\n{packed.traceback.rstrip()}"
        # `add_note` of Python 3.11, for 3.10 too.
        error.__notes__ = [*getattr(error, "__notes__", []), note]
        following = error
    assert following is not None, "a chain has a first exception"
    return following


def _unpack_one(packed: PackedException) -> BaseException:
    if packed.pickled is not None:
        try:
            error: object = pickle.loads(packed.pickled)
            if isinstance(error, BaseException):
                return error
        except Exception:  # it was unpickled by the process that raised it, but here it is another import: use the stand-in
            pass
    bases = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "Exception": Exception}
    base = bases.get(packed.builtin, BaseException)
    names = {
        "__module__": packed.module,
        "__qualname__": packed.qualname,
        "__doc__": "Stands for an exception of another process that could not be pickled.",
    }
    stand_in = type(packed.qualname.rpartition(".")[2], (base,), names)
    return cast("BaseException", stand_in(packed.text))


# ------------------------------------------------------------------------------------------------------------------- the child


class Task(NamedTuple):
    """What a child is told when it is spawned; the source follows through the pipe.

    Attributes:
        name: The source's name.
        fingerprint: Its fingerprint, if it has one.
        base: The base folder, absolute.
        num_workers: Threads of the child's runtime.
        options: How to write.
        counted: Whether the answer says how much was written.
        profiled: Whether the report says where the time went.
        takes_interrupts: Whether SIGINT raises `KeyboardInterrupt`, as in the parent. A parent with a handler of its own decides
            for all.
    """

    name: str
    fingerprint: str | None
    base: str
    num_workers: int
    options: WriteOptions
    counted: bool
    profiled: bool
    takes_interrupts: bool


class Written(NamedTuple):
    """A child's answer: the cache is there.

    Attributes:
        samples: How many; 0 when nobody asked.
        payload_bytes: Their payloads' length in bytes, before compression.
    """

    samples: int
    payload_bytes: int


class Failed(NamedTuple):
    """A child's answer: an error result."""

    message: str
    exception: list[PackedException]


class Raised(NamedTuple):
    """A child's answer: something meant for the whole program, such as an exit."""

    exception: list[PackedException]


class Stopped(NamedTuple):
    """A child's answer: it was asked to stop by SIGTERM, and has cleaned up."""


Answer: TypeAlias = Written | Failed | Raised | Stopped


class Report(NamedTuple):
    """A child's last words.

    Attributes:
        answer: What became of the source.
        stages: Where the time went, if that was measured, whatever became of the source.
    """

    answer: Answer
    stages: list[StageRow]


class _Stop(BaseException):
    """SIGTERM came: the parent wants this child to end, or is gone, or somebody else sent it."""


def child_main(pipe: Pipe, task: Task) -> None:
    """All that a child does."""
    signals = _Signals()
    answer: Answer
    profile = WriteProfile() if task.profiled else None
    try:
        signals.take(task)
        pipe.send_bytes(READY)
        parcel = [pipe.recv_bytes()]
        _watch_parent(pipe)
        answer = _write(task, parcel, profile)
    except _Stop:
        answer = Stopped()
    except EOFError:  # nobody is there any more
        return
    except BaseException as error:
        answer = Raised(pack_exception(error))
    finally:
        signals.phase = "over"
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.send_bytes(pickle.dumps(Report(answer, [] if profile is None else profile.stages())))


class _Signals:
    """What SIGTERM and SIGINT do to a child.

    The handlers stay and look at the phase. To ignore a signal that has come but was not handled yet makes Python complain on
    standard error.

    Attributes:
        phase: While the write is at `"work"`, SIGTERM unwinds it, so that it cleans up after itself. What is `"unwinding"` is
            left alone. When it is `"over"`, the work folder is gone or published, SIGTERM ends the process, and SIGINT comes too
            late.
    """

    def __init__(self) -> None:
        self.phase: Literal["work", "unwinding", "over"] = "work"

    def take(self, task: Task) -> None:
        """Install the handlers, and let SIGINT through, which the parent blocked."""
        signal.signal(signal.SIGTERM, self._terminate)
        if not task.takes_interrupts:
            signal.signal(signal.SIGINT, lambda _number, _frame: None)
        elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _terminate(self, _number: int, _frame: FrameType | None) -> None:
        if self.phase == "work":
            self.phase = "unwinding"
            raise _Stop
        if self.phase == "over":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.phase == "over":
            return
        # The parent was interrupted too, and its SIGTERM shall not disturb the cleaning up.
        self.phase = "unwinding"
        raise KeyboardInterrupt


def _watch_parent(pipe: Pipe) -> None:
    """End this process when its parent is gone. The parent sends nothing more, so that all there is to read is the end."""
    parent, main = os.getppid(), threading.main_thread().ident

    def watch() -> None:
        while not wait([pipe], PARENT_LOOK_EVERY_SECONDS) and os.getppid() == parent:
            pass
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="drt-watch-parent", daemon=True).start()


def _write(task: Task, parcel: list[bytes], profile: WriteProfile | None) -> Answer:
    """Unpickle the source, out of a parcel that is empty then, and write it."""
    from dataset_rt._native import Progress, Runtime
    from dataset_rt._results import CacheWriteError
    from dataset_rt._runtime import WriteJob, write_one

    try:
        source: object = pickle.loads(parcel.pop())
    except Exception as error:
        problem = InvalidInputError(
            f"the source could not be unpickled in its process: {type(error).__name__}: {error}; its class and what it refers to "
            "must be importable there: define them at the top level of a module or of the main script, not in a notebook or "
            "with python -c",
            kind="not-picklable",
        )
        problem.__cause__ = error
        return Failed(str(problem), pack_exception(problem))
    native = Runtime(num_workers=task.num_workers)
    base = Path(task.base)
    quiet = Progress(num_sources=1, show=False)
    job = WriteJob(source, task.name, task.fingerprint)
    result = write_one(native, job, base, task.options, quiet, profile=profile)
    if isinstance(result, CacheWriteError):
        assert result.exception is not None, "an error result has its exception where it was made"
        return Failed(result.message, pack_exception(result.exception))
    return _count(base / task.name) if task.counted else Written(0, 0)


def _count(cache: Path) -> Written:
    """How much a finished cache holds. Source: docs/spec/v3.md, "Manifest"."""
    import json

    try:
        manifest = json.loads((cache / "manifest.json").read_bytes())
        return Written(manifest["sample_count"], sum(shard["uncompressed_byte_len"] for shard in manifest["shards"]))
    except (OSError, ValueError, KeyError, TypeError):  # somebody took it away already
        return Written(0, 0)


# ------------------------------------------------------------------------------------------------------------------ the parent


def write_in_processes(
    native: Runtime,
    jobs: Sequence[WriteJob],
    base: Path,
    options: WriteOptions,
    *,
    num_processes: int,
    timeout_seconds: float,
    show_progress: bool,
    profile: CallProfile | None,
) -> list[CacheWriteResult]:
    """Write every source in a spawned process of its own, at most `num_processes` at a time.

    Args:
        native: The caller's runtime. Children have as many threads each.
        jobs: The sources, with their names.
        base: The base folder.
        options: How to write.
        num_processes: At least 1.
        timeout_seconds: How long a child may take to start, and again for its source.
        show_progress: Write a line to standard error for each source that a process is done with.
        profile: Told where the time of each child went that could still say so.

    Returns:
        One result per source, in their order.

    Raises:
        InvalidInputError: This process may not have children.
        BaseException: What a source raised that is no `Exception`, or a signal's handler. The children have ended by then.
    """
    from dataset_rt._native import Progress
    from dataset_rt._runtime import settle, write_one

    supervisor = _Supervisor(
        native,
        base,
        options,
        num_sources=len(jobs),
        num_processes=num_processes,
        timeout_seconds=timeout_seconds,
        show_progress=show_progress,
        profile=profile,
    )
    quiet = Progress(num_sources=len(jobs), show=False)
    for position, job in enumerate(jobs):
        # Where there is nothing to pull, there is nothing that a process is needed for.
        settled = settle(native, job, base, options)
        if settled is None and not options.reuse and os.path.lexists(base / job.name):
            settled = write_one(native, job, base, options, quiet)
        if settled is None:
            supervisor.waiting.append((position, job))
        else:
            supervisor.results[position] = settled
    if supervisor.waiting:
        _check_may_have_children()
        supervisor.run()
    return [supervisor.results[position] for position in range(len(jobs))]


def _check_may_have_children() -> None:
    current = multiprocessing.current_process()
    if getattr(current, "_inheriting", False):
        raise InvalidInputError(
            "WriterConfig(num_processes=...) was used while a spawned process was importing the main module. Such a process runs "
            "the main script again up to its main guard, and there is none around this call: put it under "
            '`if __name__ == "__main__":`',
            kind="invalid-config",
        )
    if current.daemon:
        raise InvalidInputError(
            f"WriterConfig(num_processes=...) cannot be used in the daemonic process {current.name!r}, such as a worker of a "
            "DataLoader or a multiprocessing.Pool: Python lets it have no children. Write the caches before such processes are "
            "started, or with num_processes=0",
            kind="invalid-config",
        )


class _Child:
    """A child process, as its parent knows it."""

    def __init__(self, position: int, name: str, process: SpawnProcess, pipe: Pipe, deadline: float) -> None:
        self.position = position
        self.name = name
        self.process = process
        self.pipe = pipe
        self.pipe_is_open = True
        self.sender: threading.Thread | None = None
        self.began = time.monotonic()
        self.deadline = deadline
        self.ready = False
        self.answer: Answer | None = None
        self.late = False
        self.asked_to_stop = False

    def send(self, pickled: bytes) -> None:
        """Send the source from a thread: a child that hangs or dies before it reads must not stop its parent."""

        def send(parcel: list[bytes]) -> None:
            with contextlib.suppress(OSError):  # the child is gone, which its end will tell
                self.pipe.send_bytes(parcel.pop())

        self.sender = threading.Thread(target=send, args=([pickled],), name=f"drt-send-{self.name}", daemon=True)
        self.sender.start()

    def is_alive(self) -> bool:
        return self.process.pid is not None and self.process.exitcode is None

    def release(self) -> None:
        """Let go of a child that has ended."""
        if self.process.pid is not None:
            self.process.join()
        if self.sender is not None:
            self.sender.join(ABORT_SECONDS)
        self.pipe.close()


class _Supervisor:
    """Starts children, waits for what they say and how they end, and stops them when it is time."""

    def __init__(
        self,
        native: Runtime,
        base: Path,
        options: WriteOptions,
        *,
        num_sources: int,
        num_processes: int,
        timeout_seconds: float,
        show_progress: bool,
        profile: CallProfile | None,
    ) -> None:
        self._native = native
        self._base = base
        self._options = options
        self._num_sources = num_sources
        self._num_processes = num_processes
        self._timeout_seconds = timeout_seconds
        self._show_progress = show_progress
        self._profile = profile
        self._context = multiprocessing.get_context("spawn")
        self._takes_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._children: list[_Child] = []
        self._any_was_ready = False
        self._left_something = False
        self._began = time.monotonic()
        self._num_finished = 0
        self._totals = Written(0, 0)
        self.waiting: deque[tuple[int, WriteJob]] = deque()
        self.results: dict[int, CacheWriteResult] = {}

    def run(self) -> None:
        """See to it that every waiting source has a result."""
        try:
            while self.waiting or self._children:
                while self.waiting and len(self._children) < self._num_processes:
                    self._start(*self.waiting.popleft())
                self._wait()
                for child in list(self._children):
                    self._look_after(child)
        finally:
            with _interrupts_held():
                self._stop_all()
                if self._left_something:
                    sweep(self._base)  # of children that could not do so themselves

    def _start(self, position: int, job: WriteJob) -> None:
        source, name = job.source, job.name
        try:
            pickled = pickle.dumps(source, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            problem = InvalidInputError(
                f"the source cannot be pickled, which num_processes > 0 asks for: {type(error).__name__}: {error}; let it hold "
                "paths and settings, and open files, connections and generators in __iter__",
                kind="not-picklable",
            )
            problem.__cause__ = error
            self._fail(position, name, problem)
            return
        base = os.path.abspath(self._base)
        task = Task(
            name,
            job.fingerprint,
            base,
            self._native.num_workers,
            self._options,
            counted=self._show_progress,
            profiled=self._profile is not None,
            takes_interrupts=self._takes_interrupts,
        )
        with _interrupts_held():
            pipe, childs_pipe = self._context.Pipe()
            process = self._context.Process(target=child_main, args=(childs_pipe, task), name=f"drt-writer-{name}")
            # A source may have children of its own, which daemonic processes must not.
            process.daemon = False
            child = _Child(position, name, process, pipe, time.monotonic() + self._timeout_seconds)
            self._children.append(child)
            try:
                with _interrupts_blocked():
                    process.start()
            except OSError as error:
                self._children.remove(child)
                pipe.close()
                not_started = SourceError(f"its process could not be started: {error}", kind="process-died")
                not_started.__cause__ = error
                self._fail(position, name, not_started)
                return
            finally:
                childs_pipe.close()
            child.send(pickled)

    def _wait(self) -> None:
        """Wait until a child says something or ends, or it is time to look."""
        if not self._children:
            return
        events: list[Any] = [child.process.sentinel for child in self._children]
        events += [child.pipe for child in self._children if child.pipe_is_open]
        next_deadline = min(child.deadline for child in self._children)
        wait(events, max(0.0, min(LOOK_EVERY_SECONDS, next_deadline - time.monotonic())))

    def _look_after(self, child: _Child) -> None:
        ended = not child.is_alive()  # before its last words are read, of which none can come later
        self._receive(child)
        if ended:
            self._finish(child)
        elif time.monotonic() >= child.deadline:
            self._press(child)

    def _receive(self, child: _Child) -> None:
        while child.pipe_is_open and child.pipe.poll():
            try:
                message = child.pipe.recv_bytes()
            except (EOFError, OSError):
                child.pipe_is_open = False
                if child.answer is None and not child.asked_to_stop:
                    child.deadline = min(child.deadline, time.monotonic() + EXIT_SECONDS)
                return
            if message == READY:
                child.ready = self._any_was_ready = True
                child.deadline = time.monotonic() + self._timeout_seconds
                continue
            answer = self._take(child, message)
            if isinstance(answer, Raised):
                raise unpack_exception(answer.exception)
            child.answer = answer
            if not child.asked_to_stop:
                child.deadline = time.monotonic() + EXIT_SECONDS

    def _take(self, child: _Child, message: bytes) -> Answer:
        report: Report = pickle.loads(message)
        if self._profile is not None:
            self._profile.report(child.position, child.name, report.stages)
        return report.answer

    def _press(self, child: _Child) -> None:
        """Ask a child to stop, and the next time do not ask any more."""
        if not child.asked_to_stop:
            child.asked_to_stop = True
            child.late = child.answer is None and child.pipe_is_open
            child.process.terminate()
            child.deadline = time.monotonic() + STOP_SECONDS
        else:
            child.process.kill()
            child.deadline = math.inf

    def _finish(self, child: _Child) -> None:
        """Turn a child that has ended into a result."""
        from dataset_rt._results import CacheWriteError, CacheWriteSuccess

        self._children.remove(child)
        child.release()
        exit_code = child.process.exitcode
        child.process.close()
        target = self._base / child.name
        match child.answer:
            case Written(samples, payload_bytes) as written:
                self.results[child.position] = CacheWriteSuccess(child.name, target)
                self._totals = Written(self._totals.samples + samples, self._totals.payload_bytes + payload_bytes)
                self._tell(child.name, written, time.monotonic() - child.began)
            case Failed(message, chain):
                failed = CacheWriteError(child.name, message)
                failed.exception = unpack_exception(chain)
                self.results[child.position] = failed
                self._tell(child.name, None, 0.0)
            case other:
                if isinstance(other, Stopped):
                    exit_code = -signal.SIGTERM
                else:
                    self._left_something = True
                problem = self._obituary(child, exit_code)
                if os.path.lexists(target):
                    problem = SourceError(f"{problem}; {target} is there, and was kept", kind=problem.kind)
                self._fail(child.position, child.name, problem)
                if not self._any_was_ready and exit_code is not None and exit_code >= 0:
                    # No child can import the main module. Running it again for every source would not help any of them.
                    problem = SourceError(f"not begun, since of another source {problem}", kind=problem.kind)
                    while self.waiting:
                        position, job = self.waiting.popleft()
                        self._fail(position, job.name, problem)

    def _obituary(self, child: _Child, exit_code: int | None) -> SourceError:
        """Why a child ended without an answer."""
        timeout = f"process_timeout_seconds={self._timeout_seconds:g}"
        if child.late and child.ready:
            return SourceError(f"writing it took longer than {timeout}; its process was stopped", kind="process-timeout")
        if child.late:
            return SourceError(f"its process took longer than {timeout} to start and was stopped", kind="process-timeout")
        if exit_code is not None and exit_code < 0:
            how = f"was ended by {_signal_name(-exit_code)}"
            if exit_code == -signal.SIGKILL:
                how += " (often for lack of memory)"
        else:
            how = f"ended with exit code {exit_code}"
        if child.ready:
            return SourceError(f"its process {how} before the cache was finished", kind="process-died")
        return SourceError(
            f"its process {how} while it started. A spawned process first imports the main module; what went wrong there is on "
            "standard error. In a script, everything that is not a definition has to stand under the main guard, "
            '`if __name__ == "__main__":`',
            kind="process-died",
        )

    def _fail(self, position: int, name: str, problem: DatasetRTError) -> None:
        from dataset_rt._runtime import failure

        self.results[position] = failure(name, problem)
        self._tell(name, None, 0.0)

    def _tell(self, name: str, written: Written | None, seconds: float) -> None:
        """Write a line about a source that a process is done with."""
        self._num_finished += 1
        if not self._show_progress or sys.stderr is None:
            return
        if written is None:
            what = "failed"
        else:
            seconds = max(seconds, 1e-9)
            rates = f"{written.samples / seconds:.0f} samples/s, {written.payload_bytes / 1e6 / seconds:.1f} MB/s"
            what = f"{written.samples} samples ({rates})"
        done = len(self.results)
        line = f"dataset-rt: {name}: {what}, {done}/{self._num_sources} sources done"
        line += f", {self._totals.samples} samples and {self._totals.payload_bytes / 1e6:.1f} MB in all"
        if left := self._num_sources - done:
            line += f", about {(time.monotonic() - self._began) / self._num_finished * left:.0f} s left"
        # A closed standard error must not stop a write.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def _stop_all(self) -> None:
        """End every child that is left, and wait for it."""
        for child in self._children:
            if child.is_alive():
                child.process.terminate()
        deadline = time.monotonic() + ABORT_SECONDS
        for child in self._children:
            if child.is_alive():
                child.process.join(max(0.0, deadline - time.monotonic()))
        for child in self._children:
            if child.is_alive():
                child.process.kill()
            elif self._profile is not None:
                self._hear_out(child)
            child.release()
            self._left_something = True
        self._children.clear()

    def _hear_out(self, child: _Child) -> None:
        """Take the profile of a child that has ended, in a call that is being left."""
        # Only one that came to its end has surely sent all of its report.
        with contextlib.suppress(EOFError, OSError):
            while child.process.exitcode == 0 and child.pipe_is_open and child.pipe.poll():
                message = child.pipe.recv_bytes()
                if message != READY:
                    self._take(child, message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _interrupts_held() -> Generator[None, None, None]:
    """Put off SIGINT until a step is done that must not be left half-way."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _interrupts_blocked() -> Generator[None, None, None]:
    """Have a process that is started meanwhile keep SIGINT for later: it is not to end with a traceback amid its imports."""
    from multiprocessing import resource_tracker

    # It unblocks SIGINT when it is started, which the first child would do.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
