"""New code for the nodes of a held run, sent by another process of this machine.

In two steps. Beside whatever the chain does, every node fetches the code and tries it: what fails here is refused, and
the chain goes on as it was. Then, between two prompts, every node stops its stage and restarts with the code, as
another member, in the same process on the same machine; what fails here ends the run. The orchestrator keeps its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ppsmoke import __version__
from ppsmoke.errors import DeadlineExceeded, PpError, RunFailed
from ppsmoke.files.code_folders import code_folder, remove_code
from ppsmoke.held_runs import AnswerLine, CodeRequest, HeldRun, Mailbox, refusal
from ppsmoke.messages import CodeFetched, FetchCode, RestartNode
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.node_source import NodeSource
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.result import error_json
from ppsmoke.process_mark import own_mark
from ppsmoke.transport.hello import PROTOCOL_VERSION
from ppsmoke.waiting import wait_for

_POLL_S = 0.25
_REFUSED = "the new code is refused, the chain goes on as it was"
_TOLD_S = 5.0  # how much earlier than we a node gives up


@dataclass(slots=True)
class _Work:
    """One request. `awaited`: the stages that have not answered; `keys`: of the nodes that begin."""

    request: CodeRequest
    awaited: set[int]
    began: float
    refusals: dict[int, str] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Redeployments:
    """`ready`: called when every node has the code of a request; the run then restarts them between two prompts.
    `told`: called when what was said of a request may stand where a prompt is typed.
    """

    def __init__(
        self,
        options: RunOptions,
        view: View,
        cluster: Cluster,
        nodes: NodeSource,
        ready: Callable[[], None],
        told: Callable[[], None],
    ) -> None:
        self._options = options
        self._view = view
        self._cluster = cluster
        self._nodes = nodes
        self._ready = ready
        self._told = told
        self._mailbox: Mailbox | None = None
        self._work: _Work | None = None
        self._count = 0
        self._over = asyncio.Event()
        self._over.set()

    @property
    def due(self) -> bool:
        """Whether the nodes can restart as soon as the chain is idle."""
        return self._work is not None and bool(self._work.keys)

    async def over(self) -> None:
        """Return when no node is about to restart, or has and was not heard of again."""
        await self._over.wait()

    async def serve(self) -> None:
        """Take requests, one after the other, until cancelled. Raises EnvironmentFault."""
        assert self._options.held_dir is not None
        run = HeldRun(
            run_id=self._options.run_id,
            version=__version__,
            protocol=PROTOCOL_VERSION,
            model_id=self._options.model.model_id,
            num_stages=self._options.num_stages,
            remote=self._nodes.network.remote,
            process=own_mark(),
        )
        self._mailbox = Mailbox(self._options.held_dir, run)
        while True:
            await asyncio.sleep(_POLL_S)
            request = self._mailbox.take() if self._work is None else None
            if request is not None:
                await self._take(request)

    def fetched(self, news: CodeFetched) -> None:
        """A stage has the code, or cannot use it."""
        work = self._work
        if work is None or news.sha256 != work.request.sha256 or news.stage_index not in work.awaited:
            return
        work.awaited.discard(news.stage_index)
        if news.refusal:
            work.refusals[news.stage_index] = news.refusal
        if not work.awaited or work.refusals:
            work.answered.set()

    async def restart(self, stage: int) -> None:
        """Tell a stage to stop and to restart. Raises as Cluster.tell does."""
        work = self._work
        assert work is not None
        key = work.keys[stage].hex()
        await self._cluster.tell(
            stage, RestartNode(run_id=self._cluster.run_id, sha256=work.request.sha256, node_key=key)
        )

    def plan_again(self) -> None:
        """Plan for the nodes that begin; the former ones have stopped."""
        assert self._work is not None
        self._cluster.plan_again(self._work.keys)

    async def wait_joined(self) -> None:
        """Return when all nodes that begin have joined.

        Raises DeadlineExceeded, which names a stage that has not, and what the nodes' source raises.
        """
        self._say("all stages have stopped; waiting for them to join with the new code")
        join_s = self._options.deadlines.join
        await self._nodes.restarted(self._cluster)
        try:
            await wait_for(self._cluster.wait_joined(), join_s)
        except TimeoutError:
            stage = self._cluster.not_joined()[0]
            raise DeadlineExceeded(
                f"stage {stage} did not come back with the new code within {join_s:g} s",
                stage=stage,
                phase="redeploy",
                remedy="Raise --join-timeout, or see its log.",
                log_tail=self._nodes.log_tail(stage),
            ) from None

    def done(self) -> None:
        """The new chain is ready."""
        work = self._work
        if work is None:
            return
        if shared := self._nodes.code_folder():
            remove_code(Path(shared), {code_folder(Path(shared), work.request.sha256)})
        seconds = time.monotonic() - work.began
        text = f"redeployed  {work.request.version}  {work.request.source}  {seconds:.1f} s"
        self._end(AnswerLine(text, done=True, result={"seconds": round(seconds, 3), "source": work.request.source}))
        self._view.line(text)
        self._told()

    def close(self, error: PpError | None) -> None:
        """The run is over: whoever waits for an answer gets one. Never raises."""
        if self._work is not None:
            self._end(_failed(error or RunFailed("the held run ended before the new code was in use")))
        if self._mailbox is not None:
            self._mailbox.close()

    # ---- one request

    async def _take(self, request: CodeRequest) -> None:
        self._work = work = _Work(request, set(range(self._options.num_stages)), time.monotonic())
        self._say(f"new code was sent: {request.source}")
        try:
            await self._prepare(work)
        except PpError as error:
            self._view.line(f"{_REFUSED}: {error}")
            self._answer(_REFUSED)
            self._end(_failed(error))
            self._told()
            return
        work.keys = [secrets.token_bytes(32) for _ in range(self._options.num_stages)]
        self._options.redactor.keep(*work.keys)
        self._over.clear()
        self._say("every stage has it; they restart as soon as no answer is under way")
        self._ready()

    async def _prepare(self, work: _Work) -> None:
        """Every node fetches and tries it. Raises RunFailed and DeadlineExceeded, which name a stage that cannot."""
        assert self._mailbox is not None
        request = work.request
        reason = refusal(request, version=__version__, protocol=PROTOCOL_VERSION)
        if reason is not None:
            remedy = "A change of the version, or of what nodes and orchestrator say to each other, needs a new run."
            raise RunFailed(reason, phase="redeploy", remedy=remedy)
        wheel = self._mailbox.wheel(request)
        try:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        except OSError as error:
            raise RunFailed(f"the new code cannot be read: {error.strerror}", phase="redeploy") from None
        if digest != request.sha256:
            raise RunFailed("the new code was changed after it was sent", phase="redeploy")
        self._count += 1
        name = f"code-{self._count}"
        self._cluster.offer(name, wheel)
        try:
            await self._have_fetched(work, name, digest)
        finally:
            self._cluster.withdraw(name)

    async def _have_fetched(self, work: _Work, name: str, digest: str) -> None:
        order = FetchCode(run_id=self._cluster.run_id, file=name, sha256=digest, folder=self._nodes.code_folder())
        await asyncio.gather(*(self._cluster.tell(stage, order) for stage in sorted(work.awaited)))
        ready_s = self._options.deadlines.ready
        try:
            await wait_for(work.answered.wait(), ready_s + _TOLD_S)
        except TimeoutError:
            stage = min(work.awaited)
            what = f"stage {stage} did not fetch the new code within {ready_s:g} s"
            raise DeadlineExceeded(what, stage=stage, phase="redeploy") from None
        if work.refusals:
            stage, why = min(work.refusals.items())
            what = f"stage {stage} cannot use the new code: {why}"
            raise RunFailed(what, stage=stage, phase="redeploy", remedy="Mend it, and send it again.")

    def _say(self, text: str) -> None:
        self._view.line(text)
        self._answer(text)

    def _answer(self, text: str) -> None:
        if self._mailbox is not None and self._work is not None:
            self._mailbox.answer(self._work.request, AnswerLine(text))

    def _end(self, line: AnswerLine) -> None:
        work, self._work = self._work, None
        assert work is not None
        if self._mailbox is not None:
            self._mailbox.answer(work.request, line)
        self._over.set()


def _failed(error: PpError) -> AnswerLine:
    return AnswerLine(str(error), done=True, error={**error_json(error), "log_tail": list(error.log_tail)})
