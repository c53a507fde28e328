"""Every error a user can meet, in one tree.

    PpError
    ├── UsageError                  exit 2: flags, values, a prompt that cannot fit
    │   ├── BadStageCount           fewer than 2 stages, or more than blocks
    │   ├── PromptTooLong
    │   └── VastKeyMissing          no key, or nothing that can be one
    ├── EnvironmentFault            exit 3: this machine cannot do it
    │   ├── ModelNotFound
    │   ├── ModelFetchFailed
    │   ├── ModelCorrupt            a checksum or size that disagrees
    │   ├── GgufMalformed
    │   │   └── GgufTruncated
    │   ├── UnsupportedModel        architecture, tensor type or tokenizer
    │   ├── ChatTemplateFailed
    │   ├── CompilerUnavailable
    │   ├── DeviceUnavailable
    │   ├── NotEnoughMemory
    │   ├── NotEnoughDisk
    │   └── BadNodeEnvironment
    ├── RunFailed                   exit 1: the run started and did not complete
    │   ├── PlanInvalid
    │   ├── StageFaulted            a stage reported a fault
    │   ├── StageDied               a stage's process ended
    │   ├── WorkerDied              a stage's worker process ended
    │   ├── WorkerFailed            a worker answered an op with an error
    │   ├── PeerLost                a link closed or fell silent
    │   │   ├── PeerLeft            the peer said goodbye
    │   │   └── LinkBroken          a connection ended whose peer may live on: another one may be had
    │   ├── EdgeFaulted
    │   ├── JoinRefused
    │   ├── OrchestratorLost
    │   ├── DeadlineExceeded
    │   ├── VerifyMismatch          --verify found other tokens in one process
    │   ├── VastFailed              a call to vast.ai failed
    │   │   ├── VastKeyRejected     the key is wrong, has expired, or may not do this
    │   │   ├── VastCreditTooLow    the account has no credit, or met its spending limit
    │   │   ├── VastRequestRefused  vast.ai calls the request wrong
    │   │   ├── VastRateLimited     too many requests, for longer than was waited
    │   │   ├── VastUnavailable     no answer, or none that can be read
    │   │   ├── ListingIncomplete   a listing of instances that proves nothing
    │   │   └── CreateFailed        an instance was not made, or may have been
    │   ├── RelayUnusable           a relay that does not answer, or too slowly
    │   ├── NotConfirmed            the user did not agree to the price
    │   ├── TooFewOffers            fewer machines on offer than stages
    │   ├── HostFailed              a rented machine failed before it was ready
    │   └── LeftBehind              something created could not be verified as gone
    │       └── LeasesLeft          exit 4: a rented instance could not be verified as destroyed
    ├── Interrupted                 exit 128 + signal
    └── RequestRejected             a worker's answer to a bad request; the worker lives on
        ├── MalformedRequest
        ├── WrongRole
        ├── BadPayload
        ├── UnknownRequest
        ├── OutOfOrder
        └── ContextExceeded

Each class has a stable `code`, an `exit_status` of pp-smoke-run, one sentence on what happened (`what`) and, where
there is something to do, one on what to do (`remedy`). `stage`, `peer` and `phase` say where. Nothing here imports
anything: the tool, the node and the worker share this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal


class PpError(Exception):
    """Base of the tree. `str()` is the sentence on what happened, without the remedy."""

    code = "error"
    exit_status = 1
    default_remedy: str | None = None
    tail_title = "last log lines"  # of `log_tail`

    def __init__(
        self,
        what: str,
        *,
        remedy: str | None = None,
        stage: int | None = None,
        peer: str | None = None,
        phase: str | None = None,
        log_tail: Sequence[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy if remedy is not None else self.default_remedy
        self.stage = stage
        self.peer = peer
        self.phase = phase
        self.log_tail = tuple(log_tail)


class UsageError(PpError):
    code = "usage"
    exit_status = 2
    default_remedy = "See pp-smoke-run --help."


class BadStageCount(UsageError):
    code = "bad_stage_count"


class PromptTooLong(UsageError):
    code = "prompt_too_long"


class VastKeyMissing(UsageError):
    code = "vast_key_missing"
    default_remedy = "Give --api-key, set VAST_API_KEY, or store the key with the vast.ai command line."


class EnvironmentFault(PpError):
    code = "environment"
    exit_status = 3


class ModelNotFound(EnvironmentFault):
    code = "model_not_found"
    default_remedy = "Give the path of a .gguf file; pp-smoke-run models fetch NAME prints that of a known model."


class ModelFetchFailed(EnvironmentFault):
    code = "model_fetch_failed"


class ModelCorrupt(EnvironmentFault):
    code = "model_corrupt"


class GgufMalformed(EnvironmentFault):
    code = "gguf_malformed"
    default_remedy = "Fetch the file again, or choose another model."


class GgufTruncated(GgufMalformed):
    code = "gguf_truncated"


class UnsupportedModel(EnvironmentFault):
    code = "unsupported_model"
    default_remedy = "Choose another model; pp-smoke-run models list shows some that work."


class ChatTemplateFailed(EnvironmentFault):
    code = "chat_template_failed"


class CompilerUnavailable(EnvironmentFault):
    code = "compiler_unavailable"


class DeviceUnavailable(EnvironmentFault):
    code = "device_unavailable"


class NotEnoughMemory(EnvironmentFault):
    code = "not_enough_memory"


class NotEnoughDisk(EnvironmentFault):
    code = "not_enough_disk"


class BadNodeEnvironment(EnvironmentFault):
    code = "bad_node_environment"


class RunFailed(PpError):
    code = "run_failed"


class PlanInvalid(RunFailed):
    code = "plan_invalid"


class StageFaulted(RunFailed):
    code = "stage_faulted"


class StageDied(RunFailed):
    code = "stage_died"


class WorkerDied(RunFailed):
    code = "worker_died"


class WorkerFailed(RunFailed):
    code = "worker_failed"


class PeerLost(RunFailed):
    code = "peer_lost"


class PeerLeft(PeerLost):
    code = "peer_left"


class LinkBroken(PeerLost):
    """`stalled_s`: how long nothing had come when it was noticed, in seconds."""

    code = "link_broken"
    stalled_s = 0.0


class EdgeFaulted(RunFailed):
    code = "edge_faulted"


class JoinRefused(RunFailed):
    code = "join_refused"


class OrchestratorLost(RunFailed):
    code = "orchestrator_lost"


class DeadlineExceeded(RunFailed):
    code = "deadline_exceeded"


class VerifyMismatch(RunFailed):
    code = "verify_mismatch"


class VastFailed(RunFailed):
    code = "vast_failed"


class VastKeyRejected(VastFailed):
    code = "vast_key_rejected"
    default_remedy = "Check the key on the account page of vast.ai; it needs to search, read and write instances."


class VastCreditTooLow(VastFailed):
    code = "vast_credit_too_low"
    default_remedy = "Add credit to the vast.ai account, or lift its spending limit."


class VastRequestRefused(VastFailed):
    code = "vast_request_refused"


class VastRateLimited(VastFailed):
    code = "vast_rate_limited"
    default_remedy = "Wait a few minutes; other programs that use the account count too."


class VastUnavailable(VastFailed):
    code = "vast_unavailable"
    default_remedy = "Try again in some minutes; check the network and the proxy variables."


class ListingIncomplete(VastFailed):
    code = "listing_incomplete"
    default_remedy = "Try again; nothing may be concluded from a part of the list."


class CreateFailed(VastFailed):
    """`outcome` is `not_created`, `unknown` (the request may have taken effect: look its label up), or `created` (the
    answer is an error, yet names an instance: destroy `created_instance_id`). `try_another`: whether another offer may
    serve; False means that every create of this run would fail alike.
    """

    code = "create_failed"

    def __init__(
        self,
        what: str,
        *,
        outcome: Literal["not_created", "unknown", "created"] = "unknown",
        created_instance_id: int | None = None,
        try_another: bool = True,
        **where: Any,
    ) -> None:
        super().__init__(what, **where)
        self.outcome = outcome
        self.created_instance_id = created_instance_id
        self.try_another = try_another


class RelayUnusable(RunFailed):
    code = "relay_unusable"


class NotConfirmed(RunFailed):
    code = "not_confirmed"


class TooFewOffers(RunFailed):
    code = "too_few_offers"
    tail_title = "what each filter removes, and what it alone"


class HostFailed(RunFailed):
    code = "host_failed"


class LeftBehind(RunFailed):
    code = "left_behind"


class LeasesLeft(LeftBehind):
    code = "leases_left"
    exit_status = 4


class Interrupted(PpError):
    """A signal ended the run; `exit_status` is 128 plus its number."""

    code = "interrupted"

    def __init__(self, what: str, *, signal_number: int, **where: object) -> None:
        super().__init__(what, **where)  # type: ignore[arg-type]
        self.exit_status = 128 + signal_number


class RequestRejected(PpError):
    code = "request_rejected"


class MalformedRequest(RequestRejected):
    code = "malformed_request"


class WrongRole(RequestRejected):
    code = "wrong_role"


class BadPayload(RequestRejected):
    code = "bad_payload"


class UnknownRequest(RequestRejected):
    code = "unknown_request"


class OutOfOrder(RequestRejected):
    code = "out_of_order"


class ContextExceeded(RequestRejected):
    code = "context_exceeded"


def error_class(code: str) -> type[PpError] | None:
    """The class with this code, of those that can be made from a sentence alone; None for a code unknown here."""
    return _by_code(PpError).get(code)


def _by_code(base: type[PpError]) -> dict[str, type[PpError]]:
    found = {} if base is Interrupted else {base.code: base}
    for child in base.__subclasses__():
        found |= _by_code(child)
    return found
