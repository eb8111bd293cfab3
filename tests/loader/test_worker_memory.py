"""What loading processes cost in memory, over a table that would be large if each had one of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from support import drt
from support.child import run_program

pytestmark = [pytest.mark.ours, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")]

ROWS = 1_000_000
MEGABYTE = 2**20

PROGRAM = """
import json, multiprocessing, sys
import polars
import torch.utils.data
import dataset_rt._torch.data
from support import drt, loading

def private(pid):
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))

def idle(end):
    end.send("imported")
    end.recv()

def private_of_an_idle_process():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=idle, args=(there,))
    process.start()
    here.recv()
    found = private(process.pid)
    here.send("end")
    process.join()
    return found

def main():
    dataset = drt.open_dataset(sys.argv[1], shuffle=True)
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 + (polars.col("i") % 97) / 10))
    batches = loading.loader(
        dataset, num_workers=4, batch_size=500, shuffle=True, multiprocessing_context="spawn",
        sample_transform_fn=loading.number_and_text, collate_fn=loading.same,
    )
    passing, seen = iter(batches), []
    for done, batch in enumerate(passing, 1):
        if done in (len(batches) // 4, len(batches) - 16):  # all four are alive and at work
            pids = [process.pid for process in multiprocessing.active_children()]
            seen.append([private(pid) for pid in sorted(pids)])
    print(json.dumps({"idle": private_of_an_idle_process(), "seen": seen}))

if __name__ == "__main__":
    main()
"""


def test_processes_share_the_table_and_do_not_grow(base: Path, tmp_path: Path) -> None:
    rows = ((number.to_bytes(4, "little"), {"i": number, "s": f"row-{number}"}) for number in range(ROWS))
    done = run_program(tmp_path / "program.py", PROGRAM, str(drt.write(base, "many", rows)))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    early, late = found["seen"]
    assert len(early) == len(late) == 4
    assert max(after - before for before, after in zip(early, late, strict=True)) < 20 * MEGABYTE
    weights = 8 * ROWS
    assert max(late) - found["idle"] < weights + 60 * MEGABYTE
