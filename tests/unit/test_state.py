"""Going on exactly where a stream was: in the same process or another, once or many times."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import dataset_rt as drt
import polars as pl
import pytest
from support import drt as subject
from support.child import run_script
from support.sources import mini, ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

GO_ON = """
import json
import dataset_rt as drt
import polars as pl
dataset = drt.DatasetRuntime(num_workers=3).cached_dataset(
    [ARGS["path"]], reader_config=drt.ReaderConfig(seed=7, prefetch_size=5, io="pread")
)
table = dataset.get_metadata().with_columns(pl.Series("weight", [1.0 + i % 5 for i in range(100)])).reverse()
dataset.update_metadata(table)
dataset.load_state_dict(json.loads(ARGS["state"]))
report([sample.sample_id for sample in dataset])
"""

ORDERS = ("weighted", "sequential", "permutation")


def open_ordered(path: Path, order: str, seed: int = 7, **options: Any) -> Any:
    config = drt.ReaderConfig(seed=seed, order=order, **options)
    return subject.runtime().cached_dataset([path], reader_config=config)


def take(samples: Any, count: int) -> list[int]:
    return subject.ids(itertools.islice(samples, count))


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(state)
    assert len(text) < 1024
    return json.loads(text)


@pytest.fixture
def cache(base: Path) -> Path:
    return subject.write(base, "a", ten_rows(10))


# orders -----------------------------------------------------------------------------------------------------------------------


def test_a_permutation_gives_each_row_once_per_epoch_in_another_order_each_time(base: Path) -> None:
    dataset = open_ordered(subject.write(base, "a", ten_rows(300)), "permutation")
    epochs = [subject.ids(dataset) for _ in range(3)]
    assert all(sorted(epoch) == list(range(300)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs[0] != sorted(epochs[0])


def test_repeated_rows_count_as_rows_of_a_permutation(cache: Path) -> None:
    dataset = open_ordered(cache, "permutation")
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table, table.filter(pl.col("sample_id") < 3)]))
    assert sorted(subject.ids(dataset)) == sorted([*range(10), 0, 1, 2])


def test_order_and_shuffle_say_the_same_thing(cache: Path) -> None:
    for order, shuffle in (("weighted", True), ("sequential", False)):
        assert drt.ReaderConfig(seed=1, order=order).shuffle is shuffle
        assert drt.ReaderConfig(seed=1, shuffle=shuffle).order == order
        drawn = [subject.ids(open_ordered(cache, order)), subject.ids(subject.open_dataset(cache, seed=7, shuffle=shuffle))]
        assert drawn[0] == drawn[1]
    assert drt.ReaderConfig(seed=1, order="permutation").shuffle is True


def test_a_copied_configuration_draws_as_it_says(cache: Path) -> None:
    weighted = drt.ReaderConfig(seed=7)
    permuted = drt.ReaderConfig(seed=7, order="permutation")
    for config, update, order in (
        (weighted, {"shuffle": False}, "sequential"),
        (weighted, {"shuffle": True}, "weighted"),
        (weighted, {"order": "permutation"}, "permutation"),
        (permuted, {"shuffle": True, "prefetch_size": 3}, "permutation"),
        (permuted, {"order": "sequential"}, "sequential"),
        (drt.ReaderConfig(seed=7, shuffle=False), {"shuffle": True}, "weighted"),
        (weighted, {"seed": 8}, "weighted"),
        (weighted, None, "weighted"),
    ):
        copied = config.model_copy(update=update)
        assert (copied.order, copied.shuffle) == (order, order != "sequential")
        assert copied == drt.ReaderConfig(**{**config.model_dump(exclude={"order", "shuffle"}), **(update or {}), "order": order})
    table_order = subject.runtime().cached_dataset([cache], reader_config=weighted.model_copy(update={"shuffle": False}))
    assert subject.ids(table_order) == list(range(10))


@pytest.mark.parametrize("field", ["seed", "shuffle", "order"])
def test_a_wrong_field_is_the_only_one_that_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"1 validation error.*\n{field}\n"):
        drt.ReaderConfig(**{"seed": 1, field: "x"})


@pytest.mark.parametrize(
    "options",
    [{"order": "sequential", "shuffle": True}, {"order": "permutation", "shuffle": False}, {"order": "random"}],
    ids=str,
)
def test_an_order_that_is_unknown_or_contradicts_shuffle_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="order"):
        drt.ReaderConfig(seed=1, **options)


def test_an_export_keeps_the_order(base: Path, cache: Path) -> None:
    dataset = open_ordered(cache, "permutation")
    restored = drt.CachedDataset.from_config(dataset.dump_config(base))
    assert restored.reader_config == dataset.reader_config
    assert subject.ids(restored) == subject.ids(dataset)


# resuming ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_every_place_of_a_run_can_be_gone_on_from(cache: Path, order: str) -> None:
    epochs, length = 3, 7
    straight = open_ordered(cache, order)
    straight.set_epoch_len(length)
    expected = [subject.ids(straight) for _ in range(epochs)]
    for stop in range(epochs * length):
        first = open_ordered(cache, order)
        first.set_epoch_len(length)
        whole, rest = divmod(stop, length)
        for _ in range(whole):
            list(first)
        samples = iter(first) if rest else iter(())
        assert take(samples, rest) == expected[whole][:rest]
        state = through_json(first.state_dict())
        second = open_ordered(cache, order)
        second.load_state_dict(state)
        assert len(second) == length - rest
        found = [subject.ids(second) for _ in range(epochs - whole)]
        assert found == [expected[whole][rest:], *expected[whole + 1 :]]
        assert len(second) == length


def test_a_run_is_resumed_many_times(base: Path) -> None:
    """Each state is saved in the run that the one before was loaded into."""
    path = subject.write(base, "a", mini(100))
    expected = subject.ids(open_ordered(path, "weighted"))
    found: list[int] = []
    state = open_ordered(path, "weighted").state_dict()
    for stop in (10, 25, 26, 90, 100):
        dataset = open_ordered(path, "weighted")
        dataset.load_state_dict(through_json(state))
        samples = iter(dataset)
        found += take(samples, stop - len(found))
        state = dataset.state_dict()
    assert found == expected


def test_a_new_process_goes_on_with_other_threads_and_prefetching_at_another_path(base: Path) -> None:
    path = subject.write(base, "a", mini(100))
    straight = open_ordered(path, "weighted")
    table = straight.get_metadata().with_columns(pl.Series("weight", [1.0 + i % 5 for i in range(100)])).reverse()
    straight.update_metadata(table)
    first = open_ordered(path, "weighted")
    first.update_metadata(table)
    samples = iter(first)
    start = take(samples, 37)
    state = json.dumps(first.state_dict())
    moved = base / "elsewhere" / "a"
    moved.parent.mkdir()
    shutil.move(path, moved)
    rest = run_script(
        GO_ON,
        {"path": str(moved), "state": state},
    )
    assert start + rest == subject.ids(straight)


def test_the_newest_iterator_says_where_a_dataset_is(cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    dataset.set_epoch_len(4)
    older, newer = iter(dataset), iter(dataset)
    take(older, 1)
    take(newer, 2)
    assert [dataset.state_dict()[key] for key in ("pass", "position", "rest")] == [1, 6, 2]
    assert [older.state_dict()[key] for key in ("pass", "position", "rest")] == [0, 1, 3]
    del newer
    assert dataset.state_dict()["position"] == 6, "a loop that was left can be gone on with"
    take(older, 3)
    assert [older.state_dict()[key] for key in ("pass", "position", "rest")] == [1, 4, 0]


def test_a_closed_iterator_gives_the_rest_of_its_window_up(cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    samples = iter(dataset)
    take(samples, 3)
    samples.close()
    assert [dataset.state_dict()[key] for key in ("pass", "position", "rest")] == [1, 10, 0]


def test_a_table_or_a_place_that_is_set_forgets_the_iterator_before_it(cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    beginning = dataset.state_dict()
    samples = iter(dataset)
    take(samples, 3)
    dataset.load_state_dict(beginning)
    assert dataset.state_dict() == beginning
    samples = iter(dataset)
    take(samples, 3)
    dataset.update_metadata(dataset.get_metadata())
    assert dataset.state_dict() == beginning


def test_an_iterator_goes_on_from_a_state_within_its_window(cache: Path) -> None:
    first = iter(open_ordered(cache, "weighted"))
    expected = take(first, 4), first.state_dict(), subject.ids(first)
    second = iter(open_ordered(cache, "weighted"))
    second.load_state_dict(through_json(expected[1]))
    assert subject.ids(second) == expected[2]
    second.load_state_dict(expected[1])
    assert subject.ids(second) == expected[2], "also backwards"
    second.close()
    second.load_state_dict(expected[1])
    assert second.state_dict() == expected[1], "also when it was closed"
    assert subject.ids(second) == expected[2]
    dataset = open_ordered(cache, "weighted")
    list(dataset)
    with pytest.raises(drt.StateMismatchError, match="position 4, and this iterator has the positions 10 to 20"):
        iter(dataset).load_state_dict(expected[1])


def test_setting_a_length_gives_up_the_rest_but_not_the_place(cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    samples = iter(dataset)
    take(samples, 3)
    other = open_ordered(cache, "sequential")
    other.load_state_dict(dataset.state_dict())
    other.set_epoch_len(2)
    assert [subject.ids(other), subject.ids(other)] == [[3, 4], [5, 6]]


def test_an_export_of_a_resumed_dataset_has_the_whole_epoch_length(base: Path, cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    samples = iter(dataset)
    take(samples, 3)
    other = open_ordered(cache, "sequential")
    other.load_state_dict(dataset.state_dict())
    assert len(other) == 7
    assert len(drt.CachedDataset.from_config(other.dump_config(base))) == 10


def test_a_resume_far_out_is_a_jump(cache: Path) -> None:
    dataset = open_ordered(cache, "permutation")
    far = dataset.state_dict() | {"position": 10**12, "rest": 0}
    dataset.load_state_dict(far)
    assert sorted(subject.ids(dataset)) == list(range(10))
    assert dataset.state_dict()["position"] == 10**12 + 10


# states that do not fit -------------------------------------------------------------------------------------------------------


def mismatch(dataset: Any, state: dict[str, Any]) -> str:
    before = dataset.state_dict()
    with pytest.raises(drt.StateMismatchError) as raised:
        dataset.load_state_dict(state)
    assert dataset.state_dict() == before
    assert raised.value.kind == "state-mismatch"
    return str(raised.value)


def test_a_state_of_another_stream_is_refused_and_says_what_differs(base: Path, cache: Path) -> None:
    dataset = open_ordered(cache, "weighted")
    take(iter(dataset), 4)
    state = dataset.state_dict()
    other_cache = open_ordered(subject.write(base, "b", ten_rows(10)), "weighted")
    assert "the caches differ" in mismatch(other_cache, state)
    assert "the seed is 8 here and was 7" in mismatch(open_ordered(cache, "weighted", seed=8), state)
    assert "the order is permutation here and was weighted" in mismatch(open_ordered(cache, "permutation"), state)
    filtered = open_ordered(cache, "weighted")
    filtered.update_metadata(filtered.get_metadata().head(9))
    message = mismatch(filtered, state)
    assert "the number of active rows is 9 here and was 10" in message
    assert "the rows of the active table differ" in message
    weighted = open_ordered(cache, "weighted")
    weighted.update_metadata(weighted.get_metadata().with_columns(pl.Series("weight", [2.0] + [1.0] * 9)))
    message = mismatch(weighted, state)
    assert "the weights differ" in message
    assert "rows" not in message


def test_what_an_order_does_not_depend_on_may_differ(cache: Path) -> None:
    ordered = open_ordered(cache, "sequential")
    take(iter(ordered), 4)
    other = open_ordered(cache, "sequential", seed=8)
    other.update_metadata(other.get_metadata().with_columns(pl.Series("weight", [2.0] + [1.0] * 9)))
    other.load_state_dict(ordered.state_dict())
    assert subject.ids(other) == [4, 5, 6, 7, 8, 9]


def test_a_state_of_another_stream_can_be_gone_on_with_by_position(cache: Path) -> None:
    dataset = open_ordered(cache, "sequential")
    take(iter(dataset), 4)
    other = open_ordered(cache, "sequential")
    other.update_metadata(other.get_metadata().head(9))
    other.load_state_dict(dataset.state_dict(), strict=False)
    assert subject.ids(other) == [4, 5, 6, 7, 8, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "torch"}, {"plan": None}, {"plan": {}}, {"position": -1}, {"position": "3"}, {"position": 2**64},
        {"pass": None}, {"rest": 1.5}, {"epoch_len": 0}, {"epoch_len": 2**63}, {"rest": 2**63},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_no_state_is_refused(cache: Path, change: dict[str, Any], strict: bool) -> None:
    dataset = open_ordered(cache, "weighted")
    state = dataset.state_dict()
    with pytest.raises(drt.InvalidInputError):
        dataset.load_state_dict(state | change, strict=strict)
    for key in state:
        with pytest.raises(drt.InvalidInputError, match=key):
            dataset.load_state_dict({name: value for name, value in state.items() if name != key}, strict=strict)
    assert dataset.state_dict() == state


@pytest.mark.parametrize("given", [None, 5, "{}", [], b""])
def test_what_is_no_dict_is_no_state(cache: Path, given: Any) -> None:
    dataset = open_ordered(cache, "weighted")
    for target in (dataset, iter(dataset)):
        with pytest.raises(drt.InvalidInputError, match="no state of a dataset: it is not a dict") as raised:
            target.load_state_dict(given)
        assert raised.value.kind == "invalid-state"


def test_a_state_of_a_later_release_is_refused_by_its_version(cache: Path) -> None:
    dataset = open_ordered(cache, "weighted")
    assert "version 2" in mismatch(dataset, dataset.state_dict() | {"version": 2})
