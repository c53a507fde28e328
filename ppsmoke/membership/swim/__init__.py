"""SWIM membership with suspicion, Lifeguard's extensions and a gossiped name registry, as one pure state machine.

It opens no socket, reads no clock, starts no task and authenticates nobody: who hands a message in has verified its
sender. It does not protect from a member that lies about itself; about others a lie does not last. It does not elect.

    api            what goes in and comes out: identities, rows of the table, actions
    config         every number, and the profiles LOCAL and WAN
    machine        `Swim`, one member: events to its parts, and their actions back
    members        what becomes of a claim: belief, doubt, contradiction
    probe          who is asked when, and what silence leads to
    exchange       joining, and comparing all that is known now and then
    names          who holds which name; name_exchange: how that gets around
    table          the records, their precedence, the order of probing
    broadcast      news that has yet to be passed on
    suspicion, awareness, rtt    Lifeguard's and RFC 6298's formulas
    wire           messages as bytes
    core           what these share

Protocol: SWIM (Das, Gupta, Motivala, DSN 2002), Lifeguard (Dadgar, Phillips, Currey, arXiv 1707.00788).
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
    Replaced,
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
    "Replaced",
    "Send",
    "Swim",
    "SwimConfig",
    "admit_all",
    "any_name",
    "cluster_tag",
]
