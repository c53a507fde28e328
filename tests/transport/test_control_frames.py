from __future__ import annotations

import pytest

from ppsmoke.transport import control
from ppsmoke.transport.closing import PeerClose, loss_text, peer_close
from ppsmoke.transport.control import Bye, Message
from ppsmoke.transport.framing import FrameError


@pytest.mark.parametrize("record", [Message("control", {"a": [1, {"b": "é"}]}), Bye("stopped")])
def test_records_survive_the_wire(record: Message | Bye) -> None:
    assert control.decode(control.encode(record)) == record


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xff", b"5", b"[]", b"{}", b"[" * 100_000, b'{"channel":"x"}', b'{"channel":1,"body":{}}', b'{"ping":"1"}'],
)
def test_what_is_no_control_frame_is_an_error(frame: bytes) -> None:
    with pytest.raises(FrameError):
        control.decode(frame)


@pytest.mark.parametrize(
    ("status", "closed", "text"),
    [
        (None, None, "the connection closed"),
        ("closed by peer: 0", PeerClose(0, ""), "the process went away"),
        ("closed by peer: 7", PeerClose(7, ""), "closed with code 7"),
        ("closed by peer: not on the list (code 401)", PeerClose(401, "not on the list"), "not on the list"),
        ("closed by peer: two\nlines (code 2) (code 3)", PeerClose(3, "two\nlines (code 2)"), "two\nlines (code 2)"),
        ("timed out", None, "it timed out"),
        ("closed", None, "the connection closed"),
    ],
)
def test_why_a_connection_closed_is_read_from_its_status(
    status: str | None, closed: PeerClose | None, text: str
) -> None:
    assert peer_close(status) == closed
    assert loss_text(status) == text
