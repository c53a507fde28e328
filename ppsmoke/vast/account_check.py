"""Before anything is rented: is the key good, and can the account pay?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ppsmoke.errors import VastCreditTooLow, VastKeyRejected, VastRequestRefused
from ppsmoke.vast.prices import usd
from ppsmoke.vast.records import Account, Instance


class Accounting(Protocol):
    """The two calls that are needed here."""

    async def list_instances(self) -> list[Instance]: ...

    async def account(self) -> Account: ...


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """`instances`: all of the account, for a warning of leftovers. `credit_usd`, and `account`, whose key it is: None
    when the key may not ask."""

    instances: tuple[Instance, ...]
    credit_usd: float | None
    account: str | None


async def check_account(api: Accounting, needed_usd: float) -> AccountCheck:
    """Raises VastKeyRejected for a key that cannot even list, VastCreditTooLow for less credit than `needed_usd`.

    A small key may list and not see the account; then the credit stays unknown and the first create tells.
    """
    instances = tuple(await api.list_instances())
    try:
        account = await api.account()
    except (VastKeyRejected, VastRequestRefused):
        return AccountCheck(instances, None, None)
    credit = account.credit_usd
    if credit is not None and credit < needed_usd:
        raise VastCreditTooLow(
            f"the vast.ai account has {usd(credit)} USD, and this run may need {usd(needed_usd)} USD", phase="preflight"
        )
    return AccountCheck(instances, credit, None if account.id is None else str(account.id))
