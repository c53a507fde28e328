"""Membership: who is alive, where, and which endpoint holds which name. SWIM over iroh."""

from ppsmoke.membership.api import (
    ENTRY_NAME,
    EXIT_NAME,
    ORCHESTRATOR_NAME,
    Member,
    Membership,
    MemberState,
    describe_member,
    stage_name,
)
from ppsmoke.membership.patience import LOCAL_SILENCE_S, WAN_SILENCE_S, local_config, wan_config
from ppsmoke.membership.swim_membership import SwimMembership
from ppsmoke.membership.table import MemberRow, table_json, table_lines

__all__ = [
    "ENTRY_NAME",
    "EXIT_NAME",
    "LOCAL_SILENCE_S",
    "ORCHESTRATOR_NAME",
    "WAN_SILENCE_S",
    "Member",
    "MemberRow",
    "MemberState",
    "Membership",
    "SwimMembership",
    "describe_member",
    "local_config",
    "stage_name",
    "table_json",
    "table_lines",
    "wan_config",
]
