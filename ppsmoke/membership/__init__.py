"""Membership: who is alive, where, and which endpoint holds which name."""

from ppsmoke.membership.api import (
    CHANNEL,
    ENTRY_NAME,
    EXIT_NAME,
    ORCHESTRATOR_NAME,
    Member,
    Membership,
    MemberState,
    stage_name,
)
from ppsmoke.membership.member import JoinedMembership
from ppsmoke.membership.seed import SeedMembership

__all__ = [
    "CHANNEL",
    "ENTRY_NAME",
    "EXIT_NAME",
    "ORCHESTRATOR_NAME",
    "JoinedMembership",
    "Member",
    "MemberState",
    "Membership",
    "SeedMembership",
    "stage_name",
]
