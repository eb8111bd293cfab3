"""Running code in child processes, under limits, so that a crash, a hang or a giant allocation fails one test.

`run_script` runs a piece of Python to its end and returns the JSON value that it reported. `Lines` talks with a
longer-lived child in JSON lines and notices when it dies or falls silent.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
HANG_SECONDS = 90  # a hang guard, not a speed limit

_PRELUDE = """
import faulthandler, json, sys
faulthandler.enable()
faulthandler.dump_traceback_later({limit}, exit=True)
sys.path[:0] = {paths!r}
ARGS = json.loads(sys.argv[1])
def report(value):
    sys.stdout.write("@report " + json.dumps(value) + chr(10))
    sys.stdout.flush()
"""


class ChildDied(AssertionError):
    """The child ended without a report; the text has its exit status and its last words."""


def prelude(limit: int = HANG_SECONDS) -> str:
    """Code put in front of every script: import paths, ARGS, report(), and stacks when time is up."""
    return _PRELUDE.format(limit=limit, paths=[str(TESTS), str(TESTS / "spec")])


def script_command(
    body: str, args: dict[str, Any] | None = None, *, limit: int = HANG_SECONDS, interpreter: Sequence[str] = (sys.executable,)
) -> list[str]:
    return [*interpreter, "-u", "-c", prelude(limit) + body, json.dumps(args or {})]


def start_script(body: str, args: dict[str, Any] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start a script; `read_report` gets what it reports, one value at a time."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen(script_command(body, args), text=True, **options)


def read_report(process: subprocess.Popen[str]) -> Any:
    """Wait for the next report of a started script."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("@report "):
            return json.loads(line[len("@report ") :])
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    raise ChildDied(f"child ended with status {process.returncode} and no report:\n{(stderr or '')[-3000:]}")


def run_script(
    body: str,
    args: dict[str, Any] | None = None,
    *,
    limit: int = HANG_SECONDS,
    interpreter: Sequence[str] = (sys.executable,),
    **options: Any,
) -> Any:
    """Run a script to its end, by default with the interpreter under test, and return its last report.

    Raises:
        ChildDied: It crashed, ran past `limit` seconds, or reported nothing.
    """
    try:
        done = subprocess.run(
            script_command(body, args, limit=limit, interpreter=interpreter),
            capture_output=True, text=True, timeout=limit + 30, check=False, **options,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ChildDied(f"child was still running after {limit + 30} s") from error
    reports = [line for line in done.stdout.splitlines() if line.startswith("@report ")]
    if done.returncode != 0 or not reports:
        raise ChildDied(f"child ended with status {done.returncode}:\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return json.loads(reports[-1][len("@report ") :])


def start_program(path: Path, text: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a script from a file: its main module is one that spawned processes import."""
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    command = [sys.executable, "-u", str(path), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run_program(path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script from a file to its end."""
    process = start_program(path, text, *arguments)
    try:
        out, err = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise ChildDied(f"{path} was still running after {HANG_SECONDS} s") from error
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Lines:
    """A child that answers one JSON line with one JSON line."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.command = command
        self.env = env
        self.process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env
        )
        self._answers = queue.Queue()
        self._errors: list[str] = []
        threading.Thread(target=self._pump, args=(self.process, self._answers), daemon=True).start()
        threading.Thread(target=self._pump_errors, args=(self.process, self._errors), daemon=True).start()

    @staticmethod
    def _pump(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put(None)

    @staticmethod
    def _pump_errors(process: subprocess.Popen[str], errors: list[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            errors.append(line)
            del errors[:-200]

    def ask(self, question: Any, *, limit: float = HANG_SECONDS) -> Any:
        """Send one request and wait for its answer; a dead child is started anew by the next request.

        Raises:
            ChildDied: The child crashed, or gave no answer within `limit` seconds (it is killed then).
        """
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = self._answers.get(timeout=limit)
        except (queue.Empty, BrokenPipeError):
            answer = None
            hung = self.process.poll() is None
            if hung:
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise ChildDied(f"child {'gave no answer in time' if hung else 'died'}: {self._last_words()}") from None
        if answer is None:
            self.process.wait()
            raise ChildDied(f"child died with status {self.process.returncode}: {self._last_words()}")
        return json.loads(answer)

    def _last_words(self) -> str:
        return "".join(self._errors)[-2000:]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def probe() -> Lines:
    """A `support.probe` child: caches go in, what happened comes out."""
    # Few malloc arenas: each reserves 64 MiB of address space, which the probe limits.
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "MALLOC_ARENA_MAX": "2"}
    return Lines([sys.executable, "-u", "-m", "support.probe"], env=environment)
