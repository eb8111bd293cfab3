"""What the loader logs, and where it goes."""

from __future__ import annotations

import logging

import pytest
from dataset_rt._torch.events import LOGGER, emit

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def test_lines_are_events_with_their_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dataset_rt.loader"):
        emit("reader_pass", rank=0, seeds=[1, 2], worker="main", nothing=None, yes=True)
    assert [(record.name, record.levelno) for record in caplog.records] == [("dataset_rt.loader", logging.INFO)]
    assert caplog.messages == ["event=reader_pass rank=0 seeds=1,2 worker=main nothing=none yes=True"]


def test_handlers_and_levels_of_the_application_decide(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, logger="dataset_rt.loader"):
        emit("reader_pass")
    assert caplog.messages == []
    assert capfd.readouterr().err == ""


def test_without_any_logging_lines_go_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    emit("reader_pass", rank=0)
    assert capfd.readouterr().err == "[dataset_rt.loader] event=reader_pass rank=0\n"
    own = logging.NullHandler()
    LOGGER.addHandler(own)
    try:
        emit("reader_pass", rank=0)
    finally:
        LOGGER.removeHandler(own)
    assert capfd.readouterr().err == ""
