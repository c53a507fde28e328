"""Which of several connections between the same two nodes becomes the link. Pure.

Either side may dial, and both may at once. Exactly one connection must win, both sides must pick the same one, and a
peer that gave up its old link must get a new one. The rules, at the node that receives a hello:

* no link, no hello of our own under way: welcome it;
* our own hello is under way to that peer: the lower node id's dial wins, the other is refused as `simultaneous` and
  its sender waits for the incoming one (whose dialler has already shown that it reaches us);
* a link exists: a peer dials only when it has none, so the link is dead on its side: replace it; except when the hello
  was made before that link (its stamp is older), then it is a leftover of a race and refused as `stale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ppsmoke.transport.hello import SIMULTANEOUS, STALE, Refused


class Verdict(Enum):
    WELCOME = "welcome"
    REPLACE = "replace the existing link"


@dataclass(frozen=True, slots=True)
class PeerStamp:
    """The newest handshake record seen from a peer on its link."""

    life: str
    stamp: int


def judge_incoming(
    *, own_id: str, peer_id: str, hello: PeerStamp, link: PeerStamp | None, own_hello_sent: bool
) -> Verdict | Refused:
    if link is not None:
        if link.life == hello.life and hello.stamp < link.stamp:
            return Refused(STALE, "a newer link exists")
        return Verdict.REPLACE
    if own_hello_sent and own_id < peer_id:
        return Refused(SIMULTANEOUS, "its own dial is under way")
    return Verdict.WELCOME
