"""Before anything is rented: is the key good, and can the account pay?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ppsmoke.errors import VastCreditTooLow, VastKeyRejected, VastRequestRefused
from ppsmoke.vast.records import Account, Instance


class Accounting(Protocol):
    """The two calls that are needed here."""

    async def list_instances(self) -> list[Instance]: ...

    async def account(self) -> Account: ...


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """`instances`: all of the account, for a warning of leftovers. `credit_usd` None: the key may not ask."""

    instances: tuple[Instance, ...]
    credit_usd: float | None


async def check_account(api: Accounting, needed_usd: float) -> AccountCheck:
    """Raises VastKeyRejected for a key that cannot even list, VastCreditTooLow for less credit than `needed_usd`.

    A small key may list and not see the account; then the credit stays unknown and the first create tells.
    """
    instances = tuple(await api.list_instances())
    try:
        credit = (await api.account()).credit_usd
    except (VastKeyRejected, VastRequestRefused):
        credit = None
    if credit is not None and credit < needed_usd:
        raise VastCreditTooLow(
            f"the vast.ai account has {credit:.2f} USD, and this run may need {needed_usd:.2f} USD", phase="preflight"
        )
    return AccountCheck(instances, credit)
