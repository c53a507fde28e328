"""SWIM membership with suspicion, Lifeguard's extensions and a gossiped name registry, as one pure state machine.

`Swim` is the machine; what it needs and what it returns is in `api`, its numbers are in `config`.
"""

from ppsmoke.membership.swim.api import (
    Action,
    AdmitRule,
    Detour,
    Identity,
    Joined,
    JoinRefused,
    MemberChanged,
    MemberState,
    MemberView,
    NameChanged,
    NameRule,
    Note,
    Send,
    admit_all,
    any_name,
    cluster_tag,
)
from ppsmoke.membership.swim.config import (
    LOCAL,
    MAX_ADDRESS_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_NAME_BYTES,
    PROTOCOL_VERSION,
    WAN,
    SwimConfig,
)
from ppsmoke.membership.swim.machine import Swim

__all__ = [
    "LOCAL",
    "MAX_ADDRESS_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_NAME_BYTES",
    "PROTOCOL_VERSION",
    "WAN",
    "Action",
    "AdmitRule",
    "Detour",
    "Identity",
    "JoinRefused",
    "Joined",
    "MemberChanged",
    "MemberState",
    "MemberView",
    "NameChanged",
    "NameRule",
    "Note",
    "Send",
    "Swim",
    "SwimConfig",
    "admit_all",
    "any_name",
    "cluster_tag",
]
