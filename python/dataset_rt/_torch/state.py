"""Where a loader is, as a dictionary that fits into JSON. Arithmetic only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, cast

from dataset_rt._mixing import differences
from dataset_rt._native import PLAN_VERSION
from dataset_rt._torch.partition import ENDLESS, PARTITIONS, Place, Topology
from dataset_rt.exceptions import InvalidInputError, StateMismatchError

FORMAT = "dataset-rt/loader-state"
MIXED_FORMAT = "dataset-rt/mixed-loader-state"
VERSION = 1
_LIMIT = 2**62  # of positions: what is left of 2**63 is enough for any pass


class Digests(NamedTuple):
    """What a stream depends on, beside numbers: SHA-256 of the caches' checksums, the active rows, the weights if they differ."""

    caches: str
    table: str
    weights: str | None


def dump(topology: Topology, digests: Digests, place: Place) -> dict[str, Any]:
    """The state of a loader at a place; `DatasetLoader.state_dict` explains it."""
    stream = topology.partition == "stream"
    return {
        "format": FORMAT,
        "version": VERSION,
        "plan": _plan(topology, digests),
        "partition": topology.partition,
        "samples": topology.samples,
        "batch_size": topology.batch_size,
        "drop_last": topology.drop_last,
        "ranks": topology.world_size,
        "repeats": topology.repeats,
        "pass": place.passes,
        "delivered": place.delivered,
        "position": place.positions[0] if stream else sum(place.positions) * topology.world_size,
        "consumers": None if stream else list(place.positions),
    }


def load(state: Mapping[str, Any], topology: Topology, digests: Digests, *, strict: bool) -> Place:
    """The place that a state names.

    Args:
        state: What `dump` made.
        topology: Who reads what, now.
        digests: Of the table that is read now.
        strict: Refuse what would go on differently.

    Raises:
        InvalidInputError: It is no such state.
        StateMismatchError: It is of another loader, and `strict`.
    """
    saved = _SavedTable(state)
    before = saved.topology(topology)
    differ = saved.differences(topology, digests)
    if topology.partition == before.partition and (topology.partition == "stream" or saved.same_consumers(topology)):
        place = saved.place(before)
        if topology.partition != "stream":
            if topology.num_batches != before.num_batches:
                place = Place(place.passes, min(place.delivered, max(0, topology.num_batches - 1)), place.positions)
        else:
            place = _in_one_stream(place, before, topology, differ)
    else:
        place = _nearest(saved, before, topology)
    if strict:
        _refuse_differences(differ)
    return place


def dump_mixed(topology: Topology, mixture: dict[str, Any], place: Place) -> dict[str, Any]:
    """The state of a mixture's loader at a place; `MixedLoader.state_dict` explains it.

    Args:
        topology: Who reads what.
        mixture: What the stream depends on.
        place: Where the loader is.
    """
    return {
        "format": MIXED_FORMAT,
        "version": VERSION,
        "mixture": mixture,
        "samples": None if topology.endless else topology.samples,
        "batch_size": topology.batch_size,
        "drop_last": topology.drop_last,
        "ranks": topology.world_size,
        "pass": place.passes,
        "delivered": place.delivered,
        "position": place.positions[0],
    }


def load_mixed(state: Mapping[str, Any], topology: Topology, mixture: Mapping[str, Any], *, strict: bool) -> Place:
    """The place that the state of a mixture's loader names.

    Args:
        state: What `dump_mixed` made.
        topology: Who reads what, now.
        mixture: What the stream depends on, now.
        strict: Refuse what would go on differently.

    Raises:
        InvalidInputError: It is no such state.
        StateMismatchError: It is of another loader, and `strict`.
    """
    saved = _SavedMixed(state)
    before = saved.topology(topology)
    differ = saved.differences(topology, mixture)
    place = _in_one_stream(Place(saved.passes, saved.delivered, (saved.position,)), before, topology, differ)
    if strict:
        _refuse_differences(differ)
    return place


def _in_one_stream(place: Place, before: Topology, topology: Topology, differences: list[str]) -> Place:
    """The place for other ranks, batches or lengths: what is left of the pass stays, as far as there are whole steps of it."""
    if not place.delivered:
        return place
    if topology.endless:
        return Place(place.passes, -(-place.delivered * before.step // topology.step), place.positions)
    left = (before.num_batches - place.delivered) * before.step
    steps, rest = divmod(left, topology.step)
    if rest and not before.endless:
        differences.append(
            f"{left} samples are left of the pass, which are no whole steps of {topology.step} (ranks times batch size)"
        )
    left_here = min(steps + bool(rest), topology.num_batches)
    return Place(place.passes, topology.num_batches - left_here, place.positions)


def _refuse_differences(differences: list[str]) -> None:
    if differences:
        raise StateMismatchError(
            f"the state is of another loader: {', '.join(differences)}; make the loader as the one that it was saved from, or "
            "pass strict=False to go on by position",
            kind="state-mismatch",
        )


def _plan(topology: Topology, digests: Digests) -> dict[str, Any]:
    return {
        "version": PLAN_VERSION,
        "order": topology.order,
        "seed": topology.seed if topology.shuffle else None,
        "rows": topology.rows,
        "caches": digests.caches,
        "table": digests.table,
        "weights": digests.weights if topology.order == "weighted" else None,
    }


def _nearest(saved: _SavedTable, before: Topology, topology: Topology) -> Place:
    """The place of a loader that divides samples in another way, by how many all ranks have had."""
    had = saved.delivered * before.step
    whole = max(0, saved.position - had)
    if not topology.effective_samples:
        return topology.beginning(saved.passes)
    batches = min(had // topology.step, topology.num_batches - 1)
    if topology.partition == "stream":
        return Place(saved.passes, batches, (saved.position,))
    passes = 0 if topology.repeats else whole // topology.effective_samples
    begun = Place(saved.passes, 0, tuple(passes * share.quota for share in topology.shares()))
    return topology.after(begun, batches)


class _Saved:
    """A state whose form was checked: what all loaders' states have."""

    form = FORMAT

    def __init__(self, state: object) -> None:
        if not isinstance(state, Mapping):
            _refuse("it is not a dict")
        self._state = cast("Mapping[str, Any]", state)
        if (form := self._item("format")) != self.form:
            _refuse(f"its format is {form!r}, and not {self.form}")
        if (version := self._number("version")) != VERSION:
            raise StateMismatchError(
                f"the state has version {version}, and this release reads version {VERSION}", kind="state-mismatch"
            )
        self.passes, self.delivered, self.position = map(self._number, ("pass", "delivered", "position"))

    def _topology(self, now: Topology, flags: tuple[str, ...], samples: int, **others: Any) -> Topology:
        """Who read what when it was saved, over the rows that there are now."""
        for name in flags:
            if type(self._item(name)) is not bool:
                _refuse(f'"{name}" is {self._item(name)!r}')
        batch_size, ranks = (self._number(name, least=1) for name in ("batch_size", "ranks"))
        before = dataclasses.replace(
            now, samples=samples, batch_size=batch_size, world_size=ranks, rank=0, **{name: self._item(name) for name in flags},
            **others,
        )  # fmt: skip
        if self.delivered and self.delivered >= before.num_batches:
            _refuse(f'"delivered" is {self.delivered}, and a pass has {before.num_batches} batches')
        return before

    def _item(self, name: str) -> Any:
        if name not in self._state:
            _refuse(f'it has no "{name}"')
        return self._state[name]

    def _number(self, name: str, least: int = 0) -> int:
        return _checked(f'"{name}"', self._item(name), least)


class _SavedTable(_Saved):
    """The state of a dataset's loader."""

    def __init__(self, state: object) -> None:
        super().__init__(state)
        plan = self._item("plan")
        if not isinstance(plan, Mapping):
            _refuse('"plan" is not a dict')
        self._saved_plan = cast("Mapping[str, Any]", plan)
        partition, consumers = self._item("partition"), self._item("consumers")
        if partition not in PARTITIONS:
            _refuse(f'"partition" is {partition!r}')
        if partition == "stream":
            consumers = [self.position]
        if type(consumers) is not list or not consumers:
            _refuse('"consumers" is no list of positions')
        self._positions = tuple(_checked('"consumers"', position) for position in cast("list[object]", consumers))

    def topology(self, now: Topology) -> Topology:
        """Who read what when it was saved, over the rows that there are now."""
        flags, samples = ("drop_last", "repeats"), self._number("samples", least=1)
        return self._topology(now, flags, samples, num_workers=len(self._positions), partition=self._item("partition"))

    def place(self, before: Topology) -> Place:
        """The place, for the loader that it was saved from."""
        return Place(self.passes, self.delivered, self._positions)

    def same_consumers(self, now: Topology) -> bool:
        """Whether each consumer finds its own position."""
        return len(self._positions) == now.consumers

    def differences(self, now: Topology, digests: Digests) -> list[str]:
        """What would make the loader go on differently, in words."""
        found: list[str] = []
        shown = {"version": "the plan version", "order": "the order", "seed": "the seed", "rows": "the number of active rows"}
        hidden = {"caches": "the caches", "table": "the rows of the active table", "weights": "the weights"}
        for name, own in _plan(now, digests).items():
            if name not in self._saved_plan:
                _refuse(f'its plan has no "{name}"')
            saved = self._saved_plan[name]
            if saved != own:
                found.append(f"{shown[name]} is {own} here and was {saved}" if name in shown else f"{hidden[name]} differ")
        facts = {
            "partition": ("the worker_partition", now.partition),
            "samples": ("the number of samples of a pass", now.samples),
        }
        if now.partition != "stream":
            facts |= {
                "batch_size": ("the batch size", now.batch_size),
                "drop_last": ("drop_last", now.drop_last),
                "ranks": ("the number of ranks", now.world_size),
                "repeats": ("whether each pass begins anew", now.repeats),
            }
            if self._item("partition") == now.partition and not self.same_consumers(now):
                found.append(f"the number of consumers of a rank is {now.consumers} here and was {len(self._positions)}")
        for name, (words, own) in facts.items():
            if (saved := self._item(name)) != own:
                found.append(f"{words} is {own} here and was {saved}")
        return found


class _SavedMixed(_Saved):
    """The state of a mixture's loader."""

    form = MIXED_FORMAT

    def __init__(self, state: object) -> None:
        super().__init__(state)
        mixture = self._item("mixture")
        if not isinstance(mixture, Mapping):
            _refuse('"mixture" is not a dict')
        self._mixture = cast("Mapping[str, Any]", mixture)
        components = self._mixture.get("components")
        if not isinstance(components, list) or not all(isinstance(each, Mapping) for each in cast("list[object]", components)):
            _refuse('its mixture has no list of "components"')
        self._components = cast("list[Mapping[str, Any]]", components)
        self._samples = None if self._item("samples") is None else self._number("samples", least=1)

    def topology(self, now: Topology) -> Topology:
        """Who read what when it was saved."""
        return self._topology(now, ("drop_last",), ENDLESS if self._samples is None else self._samples)

    def differences(self, now: Topology, mixture: Mapping[str, Any]) -> list[str]:
        """What would make the loader go on differently, in words."""
        found = differences(mixture, self._mixture, self._components)
        own = None if now.endless else now.samples
        if own != self._samples:
            here, there = ("without an end" if each is None else each for each in (own, self._samples))
            found.append(f"the number of samples of a pass is {here} here and was {there}")
        return found


def _checked(name: str, value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < _LIMIT:
        _refuse(f"{name} is no number from {least} to 2**62 - 1: {value!r}")
    return value


def _refuse(what: str) -> NoReturn:
    raise InvalidInputError(f"this is no state of a loader: {what}", kind="invalid-state")
