"""What the lease book's entries are to the user, a line each, and to the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ppsmoke.orchestrator.node_source import NodeNews
from ppsmoke.orchestrator.options import View
from ppsmoke.run_events import StagePlaced, StageState
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.instance_state import judge
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.records import CreateRequest, Instance, Offer
from ppsmoke.vast.teardown import label_of

log = logging.getLogger("ppsmoke.vast")

_UNANSWERED_S = 20.0


class RentalNews:
    """`offers`: what is known of machines, by offer; `num_stages`: for how many one is rented."""

    def __init__(self, view: View, news: NodeNews, offers: Mapping[int, Offer], num_stages: int) -> None:
        self._view = view
        self._news = news
        self._offers = offers
        self._num_stages = num_stages
        self._began = False
        self._offer_of: dict[str, int] = {}
        self._instance_of: dict[str, int] = {}
        self._awaited: dict[str, int] = {}  # the stage of each label
        self._label_of: dict[int, str] = {}  # each stage's last attempt
        self._releasing = False
        self._unanswered: dict[int, str] = {}  # what a create call that takes long is to each stage, in words

    def listed(self, instances: Iterable[Instance]) -> None:
        """What a listing shows of the machines that are awaited."""
        for instance in instances:
            label = label_of(instance)
            stage, doing = self._awaited.get(label), judge(instance).reason
            if stage is not None and stage in self._unanswered:
                self._news.node_state(stage, f"{doing}; {self._unanswered[stage]}", StageState.RENTING)
            elif stage is not None:
                self._news.node_state(stage, doing, StageState.STARTING)

    def unanswered(self, label: str, after_s: float) -> None:
        """A create call has come to nothing yet, neither an instance nor a refusal."""
        stage = self._awaited.get(label)
        if stage is None:
            return
        self._unanswered[stage] = f"no clear answer to its create call within {after_s:g} s"
        for other in self._not_begun():
            self._unanswered[other] = f"kept waiting by the create call of stage {stage}"
        for held_up in (stage, *self._not_begun()):
            self._news.node_state(held_up, self._unanswered[held_up], StageState.RENTING)
        said = f"the create call has had no clear answer for {after_s:g} s"
        self._view.line(f"stage {stage}: {said}; if it rented, the listing will show it")

    def entry(self, entry: Entry) -> None:
        """Something was asked for, or has happened."""
        self._view.detail(_detail(entry))
        if entry.kind is Kind.INTENT:
            if not self._began:
                self._began = True
                self._news.renting_began()
            if entry.label is not None and entry.offer_id is not None and entry.stage is not None:
                self._offer_of[entry.label] = entry.offer_id
                self._awaited[entry.label] = entry.stage
                self._label_of[entry.stage] = entry.label
            self._doing(entry, "being rented", anew=True)
        elif (text := self._line(entry)) is not None:
            self._view.line(text)
        if entry.kind not in (Kind.INTENT, Kind.CREATED, Kind.UNKNOWN):
            self._awaited.pop(entry.label or "", None)

    def _line(self, entry: Entry) -> str | None:
        where = f"stage {entry.stage}" if entry.stage is not None and entry.stage >= 0 else entry.label or "a machine"
        match entry.kind:
            case Kind.CREATED:
                if entry.label is not None and entry.instance_id is not None:
                    self._instance_of[entry.label] = entry.instance_id
                self._doing(entry, "being set up")
                if entry.stage is not None and entry.stage >= 0:
                    self._view.happened(StagePlaced(entry.stage, f"instance {entry.instance_id}{self._machine(entry)}"))
                return f"{where}: rented instance {entry.instance_id}{self._machine(entry)}"
            case Kind.REFUSED:
                self._doing(entry, "looking for an offer")
                return f"{where}: {entry.reason}"
            case Kind.UNKNOWN:
                self._doing(entry, "looked for")
                return f"{where}: whether it was rented is not known ({entry.reason}); the list of instances will tell"
            case Kind.RUNNING:
                self._unanswered.pop(-1 if entry.stage is None else entry.stage, None)
                self._doing(entry, "starting its node", StageState.STARTING)
                return f"{where}: instance {entry.instance_id} is running"
            case Kind.FAILED:
                self._doing(entry, "being replaced", anew=True)
                return f"{where}: instance {entry.instance_id or '-'} is given up: {entry.reason}"
            case Kind.DESTROY:
                self._ends(entry, "destroying", StageState.STOPPING)
                return None
            case Kind.GONE:
                made = entry.label in self._instance_of
                self._ends(entry, "destroyed" if made else "nothing was rented", StageState.STOPPED)
                instance_id = self._instance_of.get(entry.label or "")
                return None if instance_id is None else f"{where}: instance {instance_id} is verified as destroyed"
            case Kind.UNVERIFIED:
                return f"{where}: instance {entry.instance_id or entry.label} is not verified as destroyed"
            case Kind.RELEASE:
                self._releasing = True
                for stage in self._not_begun():
                    self._news.node_state(stage, "nothing was rented", StageState.STOPPED)
                return f"giving everything back: {entry.reason}"
            case _:
                return None

    def _machine(self, entry: Entry) -> str:
        offer = self._offers.get(self._offer_of.get(entry.label or "", -1))
        if offer is None:
            return ""
        return f", {offer.gpu_name}, {offer.location or '-'}, {offer.price_per_hour_usd:.3f} USD an hour"

    def _ends(self, entry: Entry, doing: str, state: StageState) -> None:
        """The end of a machine is that of its stage when everything ends and it is the stage's last one."""
        if self._releasing and entry.stage is not None and self._label_of.get(entry.stage) == entry.label:
            self._doing(entry, doing, state)

    def _doing(self, entry: Entry, doing: str, state: StageState = StageState.RENTING, *, anew: bool = False) -> None:
        if entry.stage is None or entry.stage < 0:
            return
        if state is StageState.RENTING and (why := self._unanswered.get(entry.stage)) is not None:
            doing = f"{doing}; {why}"
        self._news.node_state(entry.stage, doing, state, anew=anew)

    def _not_begun(self) -> list[int]:
        """Stages whose turn to be rented has not come."""
        return [stage for stage in range(self._num_stages) if stage not in self._label_of]


def _detail(entry: Entry) -> str:
    about = (entry.label, entry.instance_id, entry.reason)
    return f"lease {entry.kind.value}: " + "  ".join(str(part) for part in about if part is not None)


class WatchedListings:
    """The API as it is (see VastApi), with somebody who looks at listings that come and creates that do not."""

    def __init__(self, api: VastApi, news: RentalNews, unanswered_s: float = _UNANSWERED_S) -> None:
        """A create call that has not come back after `unanswered_s` is told."""
        self._api = api
        self._news = news
        self._unanswered_s = unanswered_s

    async def create(self, offer_id: int, request: CreateRequest) -> int:
        telling = asyncio.get_running_loop().call_later(self._unanswered_s, self._tell_unanswered, request.label)
        try:
            return await self._api.create(offer_id, request)
        finally:
            telling.cancel()

    async def list_instances(
        self, *, labels: Sequence[str] | None = None, patience_s: float | None = None
    ) -> list[Instance]:
        instances = await self._api.list_instances(labels=labels, patience_s=patience_s)
        self._news.listed(instances)
        return instances

    async def show_instance(self, instance_id: int, *, patience_s: float | None = None) -> Instance | None:
        return await self._api.show_instance(instance_id, patience_s=patience_s)

    async def destroy(
        self, instance_id: int, *, patience_s: float | None = None
    ) -> Literal["accepted", "no_such_instance"]:
        return await self._api.destroy(instance_id, patience_s=patience_s)

    async def instance_logs(
        self, instance_id: int, *, daemon: bool = False, tail: int = 1000, patience_s: float | None = None
    ) -> str:
        return await self._api.instance_logs(instance_id, daemon=daemon, tail=tail, patience_s=patience_s)

    def _tell_unanswered(self, label: str) -> None:
        try:
            self._news.unanswered(label, self._unanswered_s)
        except Exception:  # what is told cannot hold up the call
            log.exception("news of a create call could not be told")
