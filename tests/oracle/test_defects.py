"""What the public package gets wrong, and what this library does in its place.

Each test runs one script twice, in a child process with either package: ours has to do as promised, and the public package
has to show its defect, so that each of these tests is known to be able to fail. `outcome` gives a value or names what was raised.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.child import ChildDied, run_script

pytestmark = [pytest.mark.oracle, pytest.mark.ours]

HELPERS = """
import shutil
from pathlib import Path
from support import damage, drt, sources
base = Path(ARGS["base"])

def outcome(action):
    "What an action gives, or the names of the classes of what it raises, with the message."
    try:
        return {"value": action()}
    except BaseException as error:
        message = str(error).replace(str(base), "BASE")
        return {"raised": [kind.__name__ for kind in type(error).__mro__], "message": message}

def write(name, rows, **options):
    "Type, message and path of one write's result."
    (result,) = drt.write_results(base, sources.ListSource(name, rows), **options)
    return [type(result).__name__, str(result[1]).replace(str(base), "BASE")]

def payloads(samples):
    return [sample.data.decode() for sample in samples]
"""


class Library(NamedTuple):
    """One of the two packages, and a folder to write to."""

    is_ours: bool
    interpreter: list[str]
    base: Path

    def run(self, script: str, **args: Any) -> Any:
        args.setdefault("base", str(self.base))
        environment = args.pop("environment", None)
        return run_script(HELPERS + script, args, interpreter=self.interpreter, env=environment)

    def expects(self, *, ours: Any, public: Any) -> Any:
        return ours if self.is_ours else public


@pytest.fixture(params=["ours", "public package"])
def library(request: pytest.FixtureRequest, base: Path) -> Library:
    if request.param == "ours":
        return Library(True, [sys.executable], base)
    return Library(False, request.getfixturevalue("oracle_interpreter"), base)


def test_the_two_packages_are_not_the_same(library: Library) -> None:
    assert library.run("report(drt.IS_OURS)") is library.is_ours


# ------------------------------------------------------------------------------------------ wrong data without an error


def test_a_cache_rebuilt_at_its_place_gives_its_new_rows(library: Library) -> None:
    seen = library.run("""
runtime = drt.runtime(1)
def build(tag):
    rows = [(b"%s %d" % (tag, i), {"i": i}) for i in range(3)]
    runtime.write_cache(sources.ListSource("a", rows), base, writer_config=drt.writer_config())
    return payloads(runtime.cached_dataset([base / "a"], reader_config=drt.reader_config(validate=True)))
assert build(b"old") == ["old 0", "old 1", "old 2"]
shutil.rmtree(base / "a")
report(build(b"new"))
""")
    tag = library.expects(ours="new", public="old")
    assert seen == [f"{tag} {i}" for i in range(3)]


def test_floats_come_back_bit_for_bit(library: Library) -> None:
    seen = library.run("""
import random
numbers = random.Random(1)
given = [numbers.random() for _ in range(200)]
path = drt.write(base, "a", [(b"", {"f": number}) for number in given])
seen = [sample.metadata["f"] for sample in drt.open_dataset(path)]
wrong = sum(number != back for number, back in zip(given, seen, strict=True))
report([wrong, outcome(lambda: len(list(drt.open_dataset(path, validate=True))))])
""")
    wrong, validated = seen
    if library.is_ours:
        assert wrong == 0 and validated == {"value": 200}
    else:
        assert wrong > 5 and "Exception" in validated["raised"]


def test_two_writers_of_one_name_never_mix(library: Library) -> None:
    """The second one starts while the first one writes; if it may, it is still at it when the first one is done."""
    seen = library.run("""
import threading
started, finish = threading.Event(), threading.Event()

class First:
    name = "x"
    def __iter__(self):
        for i in range(6):
            if i == 3:
                second.start()
                assert started.wait(60)
            yield b"first %d" % i, {"i": i}

class Second:
    name = "x"
    def __iter__(self):
        for i in range(6):
            if i == 3:
                started.set()
                assert finish.wait(60)
            yield b"other %d" % i, {"i": i}

results = {}
def write_second():
    results["second"] = drt.write_results(base, Second())
    started.set()  # also when it was refused at once

second = threading.Thread(target=write_second)
results["first"] = drt.write_results(base, First())
finish.set()
second.join()
kinds = [type(results[name][0]).__name__ for name in ("first", "second")]
report([kinds, payloads(drt.open_dataset(base / "x"))])
""")
    tag = library.expects(ours="first", public="other")
    assert seen == [["CacheWriteSuccess", "CacheWriteError"], [f"{tag} {i}" for i in range(6)]]


def test_weights_whose_sum_overflows_leave_the_dataset_alive(library: Library) -> None:
    seen = library.run("""
import polars
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows(5)), shuffle=True)
dataset.update_metadata(dataset.get_metadata().with_columns(weight=polars.lit(1e308)))
report([outcome(lambda: len(list(dataset))), outcome(lambda: len(dataset))])
""")
    if library.is_ours:
        assert seen == [{"value": 5}, {"value": 5}]
    else:
        assert "Exception" not in seen[0]["raised"] and "RuntimeError" in seen[1]["raised"]


SYNC_SPY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void note(int fd) {
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    FILE *log = fopen(getenv("SYNC_LOG"), "a");
    if (log != NULL && length > 0) { target[length] = 0; fprintf(log, "%s\n", target); }
    if (log != NULL) fclose(log);
}
int fsync(int fd) { note(fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { note(fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
def test_every_file_and_folder_of_a_cache_is_flushed_to_the_disk(library: Library, tmp_path: Path) -> None:
    (tmp_path / "spy.c").write_text(SYNC_SPY)
    spy, log = tmp_path / "spy.so", tmp_path / "synced"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", spy, tmp_path / "spy.c", "-ldl"], check=True)
    log.touch()
    environment = {**os.environ, "LD_PRELOAD": str(spy), "SYNC_LOG": str(log)}
    library.run("""report(str(drt.write(base, "a", sources.ten_rows())))""", environment=environment)
    synced = {Path(line).name for line in log.read_text().splitlines()}
    files = {"manifest.json", "index.bin", "metadata.arrow", "000000.bin", "shards", library.base.name}
    assert synced & files == library.expects(ours=files, public=set())


@pytest.mark.parametrize("payload", ["5", "[1, 2]", "True"])
def test_numbers_are_no_payloads(library: Library, payload: str) -> None:
    seen = library.run(f"""report(write("a", [({payload}, {{"i": 1}})])[0])""")
    assert seen == library.expects(ours="CacheWriteError", public="CacheWriteSuccess")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_integers_beyond_64_bits_are_refused_and_not_rounded(library: Library, number: int) -> None:
    seen = library.run(
        """
kind, message = write("a", [(b"", {"i": int(ARGS["number"])})])
report([kind, message if kind == "CacheWriteError" else next(iter(drt.open_dataset(base / "a"))).metadata["i"]])
""",
        number=str(number),
    )
    if library.is_ours:
        assert seen[0] == "CacheWriteError" and str(number) in seen[1]
    else:
        assert seen == ["CacheWriteSuccess", float(number)]


# --------------------------------------------------------------------------------------------------- crashes and hangs


@pytest.mark.parametrize("cache", ["damaged/index_length_2_pow_40/cache", "v3/nul_key"])
def test_no_cache_ends_the_process(library: Library, golden: Path, cache: str) -> None:
    script = """
import resource
import polars
resource.setrlimit(resource.RLIMIT_AS, (1 << 35, 1 << 35))  # of which an unchecked length wants more
dataset = drt.open_dataset(Path(ARGS["cache"]))
list(dataset)
dataset.get_metadata()
"""
    script = "def use():" + script.replace("\n", "\n    ") + "\nreport(outcome(use))"
    if library.is_ours:
        assert "DatasetRTError" in library.run(script, cache=str(golden / cache))["raised"]
    else:
        with pytest.raises(ChildDied, match="status -6"):
            library.run(script, cache=str(golden / cache))


@pytest.mark.parametrize("case", ["metadata_column_missing_resealed", "manifest_duplicate_column"])
def test_tables_that_do_not_fit_the_manifest_are_told_as_such(library: Library, golden: Path, case: str) -> None:
    cache = golden / "damaged" / case / "cache"
    seen = library.run("""report(outcome(lambda: len(drt.open_dataset(Path(ARGS["cache"]), validate=True))))""", cache=str(cache))
    if library.is_ours:
        assert "CorruptCacheError" in seen["raised"] and str(cache) in seen["message"]
    else:
        assert "worker" in seen["message"] and "cache" not in seen["message"]


def test_a_forked_child_does_not_hang(library: Library) -> None:
    seen = library.run(
        """
import os, select, signal, warnings
warnings.simplefilter("ignore")
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows()))
assert len(list(dataset)) == 10
out, into = os.pipe()
child = os.fork()
if child == 0:
    answer = outcome(lambda: len(list(dataset)))
    os.write(into, b"an answer" if answer == {"value": 10} or "Exception" in answer["raised"] else repr(answer).encode())
    os._exit(0)
ready, _, _ = select.select([out], [], [], ARGS["patience"])
report(os.read(out, 1000).decode() if ready else "silence")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
""",
        patience=library.expects(ours=60, public=5),
    )
    assert seen == library.expects(ours="an answer", public="silence")


def test_a_bad_row_in_a_list_of_sources_is_noticed_at_once(library: Library) -> None:
    seen = library.run("""
rows = ((b"", {"i": "five" if i == 5 else i}) for i in range(50_000))
source = sources.CountingSource("a", rows)
results = drt.write_results(base, [source, sources.ListSource("b", sources.ten_rows())])
report([[type(result).__name__ for result in results], source.pulled])
""")
    kinds, pulled = seen
    assert kinds == ["CacheWriteError", "CacheWriteSuccess"]
    assert pulled == 50_000 if not library.is_ours else pulled < 10_000


SOME_TICKS = 0.02  # a millisecond, of the one there could be: a thread that is locked out gets one in a whole call


@pytest.mark.slow
@pytest.mark.parametrize("what", ["get_item", "next", "write", "open"])
def test_other_threads_run_while_native_work_is_waited_for(library: Library, what: str) -> None:
    share = library.run(
        """
import threading, time
rows = [(sources.noise("large", 200_000_000), {"i": 0})]
path = drt.write(base, "a", rows)
dataset = drt.open_dataset(path)
(pair,) = drt.pairs(dataset)
action = {
    "get_item": lambda: dataset.get_item(*pair),
    "next": lambda: next(iter(dataset)),
    "write": lambda: drt.write(base, "w", rows),
    "open": lambda: drt.open_dataset(path, validate=True),
}[ARGS["what"]]
ticks, done = [0], threading.Event()
def ticking():
    while not done.is_set():
        ticks[0] += 1
        time.sleep(0.001)
threading.Thread(target=ticking, daemon=True).start()
best = 0.0
for _ in range(ARGS["tries"]):  # a busy machine may starve the other thread now and then
    time.sleep(0.01)
    before, start = ticks[0], time.perf_counter()
    action()
    best = max(best, (ticks[0] - before) / (time.perf_counter() - start) / 1000)
    shutil.rmtree(base / "w", ignore_errors=True)
    if best > ARGS["enough"]:
        break
done.set()
report(best)
""",
        what=what,
        tries=library.expects(ours=40, public=4),
        enough=SOME_TICKS,
    )
    assert (share > SOME_TICKS) is library.is_ours


# ------------------------------------------------------------------------------- unreadable caches accepted by the writer


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_could_not_be_read_again_are_refused(library: Library, number: str) -> None:
    seen = library.run(
        """
kind, message = write("a", [(b"", {"f": 0.5}), (b"", {"f": float(ARGS["number"])})])
report([kind, message, outcome(lambda: len(list(drt.open_dataset(base / "a"))))])
""",
        number=number,
    )
    if library.is_ours:
        assert seen[0] == "CacheWriteError" and "sample 1" in seen[1] and '"f"' in seen[1]
        assert "CacheNotFoundError" in seen[2]["raised"]
    else:
        assert seen[0] == "CacheWriteSuccess" and "raised" in seen[2]


def test_numbers_that_are_not_finite_are_read_where_they_stand(library: Library, golden: Path) -> None:
    seen = library.run(
        """report(outcome(lambda: len(list(drt.open_dataset(Path(ARGS["cache"]))))))""", cache=str(golden / "v3" / "nonfinite")
    )
    assert ("value" in seen) is library.is_ours


@pytest.mark.parametrize("name", ["cache_id", "sample_id", "weight", ""])
def test_names_that_spoil_the_table_are_refused(library: Library, name: str) -> None:
    seen = library.run(
        """
kind, message = write("a", [(b"", {ARGS["name"]: 1})])
table = outcome(lambda: drt.open_dataset(base / "a").get_metadata().columns)
report([kind, message, table])
""",
        name=name,
    )
    if library.is_ours:
        assert seen[0] == "CacheWriteError" and "sample 0" in seen[1] and (f'"{name}"' if name else "empty name") in seen[1]
    else:
        assert seen[0] == "CacheWriteSuccess"
        assert "raised" in seen[2] if name else "" not in seen[2]["value"]


def test_samples_need_no_metadata(library: Library) -> None:
    seen = library.run("""
kind, message = write("a", [(b"x", {}), (b"y", {})])
report([kind, outcome(lambda: [sample.metadata for sample in drt.open_dataset(base / "a")])])
""")
    if library.is_ours:
        assert seen == ["CacheWriteSuccess", {"value": [{}, {}]}]
    else:
        assert seen[0] == "CacheWriteError"


def test_a_field_after_none_at_all_is_named(library: Library) -> None:
    kind, message = library.run("""report(write("a", [(b"x", {}), (b"y", {"field": 1})]))""")
    assert kind == "CacheWriteError"
    assert ("field" in message and "sample 1" in message) is library.is_ours


# ---------------------------------------------------------------------------------------------------------- surprises


def test_iter_takes_the_table_of_its_moment(library: Library) -> None:
    seen = library.run("""
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows(4)))
iterator = iter(dataset)
dataset.update_metadata(dataset.get_metadata()[2:])
report(drt.ids(iterator))
""")
    assert seen == library.expects(ours=[0, 1, 2, 3], public=[2, 3])


def test_an_update_that_changes_nothing_changes_no_draw(library: Library) -> None:
    seen = library.run("""
path = drt.write(base, "a", sources.ten_rows(5))
untouched, updated = (drt.open_dataset(path, shuffle=True, seed=11) for _ in range(2))
updated.update_metadata(updated.get_metadata())
for dataset in (untouched, updated):
    dataset.set_epoch_len(50)
report(drt.ids(untouched) == drt.ids(updated))
""")
    assert seen is library.is_ours


def test_a_length_that_is_refused_has_no_effect(library: Library) -> None:
    seen = library.run("""
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows(5)))
report([outcome(lambda: dataset.set_epoch_len(2**63)), outcome(lambda: len(dataset))])
""")
    assert "OverflowError" in seen[0]["raised"] or (library.is_ours and "ValueError" in seen[0]["raised"])
    if library.is_ours:
        assert seen[1] == {"value": 5}
    else:
        assert "OverflowError" in seen[1]["raised"]


def test_caches_of_one_identity_are_named_with_the_remedy(library: Library) -> None:
    seen = library.run("""
paths = [drt.write(base / folder, "a", sources.ten_rows(2)) for folder in ("one", "two")]
report(outcome(lambda: len(drt.open_dataset(paths))))
""")
    assert "ValueError" in seen["raised"]
    told = ["BASE/one/a" in seen["message"], "BASE/two/a" in seen["message"], "name" in seen["message"]]
    assert told == library.expects(ours=[True, True, True], public=[False, False, False])


@pytest.mark.parametrize("occupied_by", ["folder", "file"])
def test_what_is_no_cache_does_not_pass_for_one(library: Library, occupied_by: str) -> None:
    seen = library.run(
        """
(base / "a").mkdir() if ARGS["occupied_by"] == "folder" else (base / "a").write_text("mine")
def load():
    result = drt.runtime().from_cache_sources(
        [sources.ListSource("a", sources.ten_rows(2)), sources.ListSource("b", sources.ten_rows(3))], base,
        reader_config=drt.reader_config(), writer_config=drt.writer_config(),
    )
    return [[type(each).__name__ for each in result.results], drt.ids(result.dataset)]
report(outcome(load))
""",
        occupied_by=occupied_by,
    )
    if library.is_ours:
        assert seen == {"value": [["CacheWriteError", "CacheWriteSuccess"], [0, 1, 2]]}
    else:
        assert "raised" in seen


@pytest.mark.parametrize("name", ["tmp", "TMP"])
def test_the_name_of_the_work_area_is_refused_before_its_source_runs(library: Library, name: str) -> None:
    seen = library.run(
        """
source = sources.CountingSource(ARGS["name"], sources.ten_rows())
(result,) = drt.write_results(base, source)
report([type(result).__name__, source.pulled])
""",
        name=name,
    )
    assert seen == library.expects(
        ours=["CacheWriteError", 0], public=["CacheWriteError" if name == "tmp" else "CacheWriteSuccess", 10]
    )


def test_names_that_differ_in_case_alone_are_refused(library: Library) -> None:
    seen = library.run("""
written = [sources.ListSource(name, sources.ten_rows(2)) for name in ("data", "Data")]
report(outcome(lambda: [type(result).__name__ for result in drt.write_results(base, written)]))
""")
    if library.is_ours:
        assert "InvalidInputError" in seen["raised"] and "'data'" in seen["message"] and "'Data'" in seen["message"]
    else:
        assert seen == {"value": ["CacheWriteSuccess"] * 2}


RAISING = """
import asyncio
class Source:
    name = "a"
    def __iter__(self):
        yield b"", {"i": 0}
        raise eval(ARGS["what"])
"""


def test_an_exit_keeps_its_code(library: Library) -> None:
    seen = library.run(
        RAISING
        + """
try:
    drt.write_results(base, Source())
except SystemExit as error:
    report(error.code)
""",
        what="SystemExit(3)",
    )
    assert seen == 3 if library.is_ours else seen != 3


@pytest.mark.parametrize("what", ["asyncio.CancelledError()", "GeneratorExit()"])
def test_exceptions_that_are_no_errors_pass_through(library: Library, what: str) -> None:
    seen = library.run(RAISING + "report(outcome(lambda: type(drt.write_results(base, Source())[0]).__name__))", what=what)
    if library.is_ours:
        assert what.partition("(")[0].rpartition(".")[2] in seen["raised"]
    else:
        assert seen == {"value": "CacheWriteError"}


# ----------------------------------------------------------------------------------------------------------- messages


def test_a_failed_read_names_its_file(library: Library) -> None:
    seen = library.run("""
path = drt.write(base, "a", sources.big_rows(4, 5000), max_shard_bytes=1)
dataset = drt.open_dataset(path, io="pread")
with open(path / "shards" / "000002.bin", "r+b") as file:
    file.truncate(100)
report(outcome(lambda: len(list(dataset))))
""")
    assert "Exception" in seen["raised"]
    assert ("BASE/a/shards/000002.bin" in seen["message"]) is library.is_ours


def test_a_wrong_kind_names_its_row(library: Library) -> None:
    kind, message = library.run("""report(write("a", [(b"", {"field": "text" if i == 57 else i}) for i in range(90)]))""")
    assert kind == "CacheWriteError" and "field" in message
    assert ("57" in message) is library.is_ours


def test_a_malformed_manifest_is_named(library: Library) -> None:
    seen = library.run("""
path = drt.write(base, "a", sources.ten_rows())
(path / "manifest.json").write_text("{")
report(outcome(lambda: len(drt.open_dataset(path))))
""")
    assert ("BASE/a/manifest.json" in seen["message"]) is library.is_ours


def test_what_is_no_frame_is_a_type_error(library: Library) -> None:
    seen = library.run("""
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows()))
report(outcome(lambda: dataset.update_metadata({"weight": [1.0]})))
""")
    assert ("TypeError" in seen["raised"] and "dict" in seen["message"]) is library.is_ours


@pytest.mark.parametrize("dtype", ["Int8", "Int16", "UInt8", "UInt16"])
def test_small_counts_are_weights(library: Library, dtype: str) -> None:
    seen = library.run(
        """
import polars
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows()))
given = dataset.get_metadata().with_columns(polars.col("weight").cast(getattr(polars, ARGS["dtype"])))
report(outcome(lambda: dataset.update_metadata(given)))
""",
        dtype=dtype,
    )
    assert (seen == {"value": None}) is library.is_ours


def test_numpy_integers_are_identities(library: Library) -> None:
    pytest.importorskip("numpy")
    seen = library.run("""
import numpy
dataset = drt.open_dataset(drt.write(base, "a", sources.ten_rows()))
((cache_id, _), *_) = drt.pairs(dataset)
report(outcome(lambda: dataset.get_item(numpy.uint64(cache_id), numpy.int64(3)).sample_id))
""")
    if library.is_ours:
        assert seen == {"value": 3}
    else:
        assert "TypeError" in seen["raised"]


def test_one_path_is_not_taken_for_a_list_of_letters(library: Library) -> None:
    seen = library.run("""
path = drt.write(base, "a", sources.ten_rows())
report(outcome(lambda: len(drt.runtime().cached_dataset(str(path), reader_config=drt.reader_config()))))
""")
    assert "ValueError" in seen["raised"]
    assert ("list" in seen["message"] and "BASE/a" in seen["message"]) is library.is_ours


def test_the_traceback_of_a_source_is_kept(library: Library) -> None:
    seen = library.run("""
import traceback
def rows():
    yield b"", {"i": 0}
    a_line_that_fails = {}["key"]
(result,) = drt.write_results(base, sources.ListSource("a", rows()))
error = getattr(result, "exception", None)
report("" if error is None else "".join(traceback.format_exception(error)))
""")
    assert ("in rows" in seen and "KeyError" in seen) is library.is_ours


# ------------------------------------------------------------------------------------------------------ trust and types


@pytest.mark.parametrize("form", ["../../outside.bin", "absolute"])
@pytest.mark.parametrize("validate", [False, True])
def test_a_manifest_cannot_lead_out_of_its_cache(library: Library, form: str, validate: bool) -> None:
    seen = library.run(
        """
import json
path = drt.write(base, "a", sources.ten_rows(3))
outside = base / "outside.bin"
(path / "shards" / "000000.bin").rename(outside)
manifest = json.loads((path / "manifest.json").read_text())
manifest["shards"][0]["name"] = str(outside) if ARGS["form"] == "absolute" else ARGS["form"]
(path / "manifest.json").write_text(json.dumps(manifest))
report(outcome(lambda: payloads(drt.open_dataset(path, validate=ARGS["validate"]))))
""",
        form=form,
        validate=validate,
    )
    if library.is_ours:
        assert "CorruptCacheError" in seen["raised"]
    else:
        assert seen == {"value": ["p0", "p1", "p2"]}


def test_any_mapping_is_metadata(library: Library) -> None:
    seen = library.run("""
import types
report(write("a", [(b"", types.MappingProxyType({"i": 1}))])[0])
""")
    assert seen == library.expects(ours="CacheWriteSuccess", public="CacheWriteError")


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_damaged_payload_is_noticed_when_it_is_read(library: Library, algo: str) -> None:
    seen = library.run(
        """
path = drt.write(base, "a", sources.big_rows(4, 500), algo=ARGS["algo"])
shard, offset, length = damage.place(path, 2)
damage.flip(shard, offset + length - 3)
samples, rows = iter(drt.open_dataset(path)), sources.big_rows(4, 500)
assert [next(samples).data for _ in range(2)] == [payload for payload, _ in rows[:2]]
report(outcome(lambda: next(samples).data == rows[2][0]))
""",
        algo=algo,
    )
    if library.is_ours:
        assert "CorruptCacheError" in seen["raised"] and "sample 2" in seen["message"]
    else:
        assert seen == {"value": False}
