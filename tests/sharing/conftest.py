"""A hub of its own for each test, and a small saved retriever to share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retrievers.contract import dataset
from tests.sharing.hub_server import WRITER, HubServer, running
from triever import BM25


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved retriever, which no test changes."""
    folder = tmp_path_factory.mktemp("shared") / "model"
    BM25().fit(dataset()).save(folder)
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A hub on this machine, which a client reaches that may write; nothing else is reached from a test."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # it has servers of its own
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "nobody"))
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with running() as server:
        files = f"{server.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.address)  # as HF_ENDPOINT sets both
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", files)
        yield server
