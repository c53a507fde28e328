"""How many bytes a token costs: on an edge as the tool frames it, and on the loopback interface as it is counted."""

from __future__ import annotations

import re
from pathlib import Path

from ppsmoke.objects import StreamObject, encode_header, token_payload
from ppsmoke.transport.framing import frame_pieces


def edge_bytes(hidden_dim: int) -> dict[str, float]:
    """Bytes of one decode step's object on an activation edge and on a token edge, header and frame included."""
    return {"activation_bytes": _framed(bytes(4 * hidden_dim)), "token_bytes": _framed(token_payload([0]))}


def loopback_bytes() -> int | None:
    """Bytes that the loopback interface has carried since the system started; None where it does not say.

    They are everybody's: QUIC's own headers, acknowledgements and membership, and whatever else uses the interface.
    """
    try:
        return parse_interface(Path("/proc/net/dev").read_text(), "lo")
    except OSError:
        return None


def parse_interface(text: str, name: str) -> int | None:
    """Received bytes of an interface from the text of /proc/net/dev."""
    found = re.search(rf"^\s*{re.escape(name)}:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _framed(payload: bytes) -> float:
    step = StreamObject(0, "0" * 32, 1, 1, 1, payload)
    return float(sum(len(piece) for piece in frame_pieces(encode_header(step), payload)))
