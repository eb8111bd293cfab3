"""Edits of the active table, described by a small JSON object so that two interpreters make the same ones."""

from __future__ import annotations

from typing import Any


def edited(frame: Any, edit: dict[str, Any]) -> Any:
    """Take `rows` (positions, repeats allowed), give them `weights`, and add columns when `extra` is set.

    The extra columns hold lists, structs, times and categories, the last in two chunks with dictionaries of their own; with
    `extra` as `"plain"` there are no categories.
    """
    import polars as pl

    table = frame[edit["rows"]]
    if "weights" in edit:
        table = table.with_columns(pl.Series("weight", edit["weights"], dtype=pl.Float64))
    if not edit.get("extra"):
        return table
    half = table.height // 2
    table = table.with_columns(
        pl.int_range(pl.len()).alias("order"),
        pl.concat_list(pl.col("sample_id"), pl.col("sample_id") + 1).alias("list"),
        pl.struct(a=pl.col("sample_id"), b=pl.lit("x")).alias("struct"),
        pl.lit("2024-02-29").str.to_date().alias("day"),
    )
    if edit["extra"] == "plain":
        return table
    parts = [
        part.with_columns(pl.format(template, pl.col("sample_id") % 3).cast(pl.Categorical).alias("category"))
        for part, template in ((table[:half], "early-{}"), (table[half:], "late-{}"))
    ]
    return pl.concat(parts, rechunk=False)
