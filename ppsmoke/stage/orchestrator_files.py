"""The files that a node's orchestrator offers, as the node's settings lead to them."""

from __future__ import annotations

from ppsmoke.files.reader import FileReader
from ppsmoke.stage.settings import NodeSettings


def orchestrator_files(settings: NodeSettings) -> FileReader:
    """A context manager. Raises ModelFetchFailed for an address that is none."""
    return FileReader(
        settings.seed_addr,
        run_id=settings.run_id,
        join_token=bytes.fromhex(settings.join_token),
        relay_urls=settings.seed_relay,
        relay_token=settings.relay_token,
        far=settings.far,
    )
