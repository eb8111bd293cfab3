"""Calling functions of the caller's in the middle of an iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def called(name: str, function: Callable[[T], R], value: T) -> R:
    """What a function makes of a value.

    Args:
        name: What the caller knows the function as.
        function: It.
        value: What it gets.

    Raises:
        RuntimeError: It raised StopIteration, with which the iteration around it would end in silence.
    """
    try:
        return function(value)
    except StopIteration as error:
        raise _stopped(name) from error


def called_for_each(name: str, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
    """What a function makes of each value.

    Args:
        name: As for `called`.
        function: As for `called`.
        values: What it gets, one after another.

    Raises:
        RuntimeError: As for `called`.
    """
    try:
        return [function(value) for value in values]
    except StopIteration as error:
        raise _stopped(name) from error


def _stopped(name: str) -> RuntimeError:
    return RuntimeError(f"{name} raised StopIteration, which ends iterations; next(iterator, default) does not raise it")
