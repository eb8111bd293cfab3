"""A forked child works or raises at once, and never hangs; the parent is unharmed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import drt as subject
from support.child import run_script
from support.sources import mini

pytestmark = [pytest.mark.quick, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SCRIPT = """
import os, select, signal, warnings
from pathlib import Path
from support import drt, sources
warnings.simplefilter("ignore")
path = Path(ARGS["path"])
runtime = drt.runtime(2)
dataset = runtime.cached_dataset([path], reader_config=drt.reader_config(io=ARGS["io"]))
cache_id = dataset.get_item(*drt.pairs(dataset)[0]).cache_id
if ARGS.get("tables"):  # Polars starts threads of its own, which no child has
    import polars
    table = dataset.get_metadata()
    assert table.filter(polars.col("cls") == 1).sort("s").height == 67
    dataset.update_metadata(table)
iterator = iter(dataset)
next(iterator)
wanted = list(range(200))

def write_inherited():
    source = sources.ListSource("child", sources.mini(5))
    (result,) = runtime.write_cache(source, path.parent, writer_config=drt.writer_config())
    return type(result).__name__ in ("CacheWriteSuccess", "CacheWriteError")

def new_runtime():
    return drt.ids(drt.open_dataset(path, io=ARGS["io"])) == wanted

ACTIONS = {
    "iterate": lambda: drt.ids(dataset) == wanted,
    "continue": lambda: drt.ids(iterator) == wanted[1:],
    "get_item": lambda: dataset.get_item(cache_id, 7).data == sources.mini_payload(7),
    "open": lambda: drt.ids(runtime.cached_dataset([path], reader_config=drt.reader_config())) == wanted,
    "write": write_inherited,
    "length": lambda: len(dataset) == 200,
    "new runtime": new_runtime,
    "leave": lambda: True,
}
out, into = os.pipe()
child = os.fork()
if child == 0:
    try:
        answer = b"right" if ACTIONS[ARGS["action"]]() else b"WRONG"
    except Exception as error:
        answer = b"error " + repr(error).encode()[:300]
    except BaseException as error:
        answer = b"NO EXCEPTION " + repr(error).encode()[:300]
    os.write(into, answer)
    if ARGS["action"] == "leave":
        del iterator, dataset, runtime
    os._exit(0)
os.close(into)
ready, _, _ = select.select([out], [], [], 60)
answer = os.read(out, 1000).decode() if ready else "HANGS"
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
parent = drt.ids(iterator) == wanted[1:] and drt.ids(dataset) == wanted
report([answer, parent])
"""

HANGS_IN_PUBLIC_PACKAGE = ("iterate", "continue", "get_item", "open", "write")


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("action", [*HANGS_IN_PUBLIC_PACKAGE, "length", "new runtime", "leave"])
def test_a_forked_child_works_or_raises(base: Path, action: str, io: str) -> None:
    if not subject.IS_OURS and action in HANGS_IN_PUBLIC_PACKAGE:
        pytest.skip("the public package hangs here")
    path = subject.write(base, "a", mini(200), algo="lz4" if io == "pread" else "none")
    answer, parent_is_unharmed = run_script(SCRIPT, {"path": str(path), "action": action, "io": io})
    assert answer == "right" or answer.startswith("error "), answer
    assert action not in ("length", "new runtime", "leave") or answer == "right", answer
    assert parent_is_unharmed


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("action", ["iterate", "continue", "get_item", "length", "new runtime"])
def test_a_forked_child_of_a_parent_that_used_tables_works_or_raises(base: Path, action: str, io: str) -> None:
    path = subject.write(base, "a", mini(200))
    answer, parent_is_unharmed = run_script(SCRIPT, {"path": str(path), "action": action, "io": io, "tables": True})
    assert answer == "right" or answer.startswith("error "), answer
    assert parent_is_unharmed


@pytest.mark.ours
def test_an_error_in_a_forked_child_names_the_fork(base: Path) -> None:
    path = subject.write(base, "a", mini(200))
    answers = [run_script(SCRIPT, {"path": str(path), "action": action, "io": "mmap"})[0] for action in HANGS_IN_PUBLIC_PACKAGE]
    assert all(answer == "right" or "fork" in answer.lower() for answer in answers), answers
