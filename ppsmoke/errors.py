"""Every error a user can meet, in one tree.

    PpError
    ├── UsageError                  exit 2: flags, values, a prompt that cannot fit
    │   ├── BadStageCount           fewer than 2 stages, or more than blocks
    │   ├── PromptTooLong
    │   ├── VastKeyMissing          no key, or nothing that can be one
    │   └── PackageMissing          what rented machines are to install is not where they look for it
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

_LOOK = "The report on the run directory tells what led to this, with every stage's log: pp-smoke-run report."


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
    """The options or their values cannot be served as they are."""

    code = "usage"
    exit_status = 2
    default_remedy = "See pp-smoke-run --help."


class BadStageCount(UsageError):
    """Fewer than 2 stages, or more than the model has blocks."""

    code = "bad_stage_count"


class PromptTooLong(UsageError):
    """The prompt does not fit into the context."""

    code = "prompt_too_long"


class VastKeyMissing(UsageError):
    """There is no key for vast.ai, or nothing that can be one."""

    code = "vast_key_missing"
    default_remedy = "Give --api-key, set VAST_API_KEY, or store the key with the vast.ai command line."


class PackageMissing(UsageError):
    """What rented machines are to install is not on their index."""

    code = "package_missing"
    default_remedy = "Give --ship, which has them install the code that runs here, or another --package or --index-url."


class EnvironmentFault(PpError):
    """This machine cannot do it: a file, a socket, a limit or a library is in the way."""

    code = "environment"
    exit_status = 3


class ModelNotFound(EnvironmentFault):
    """There is no such file; a name that is not known is a `usage` error."""

    code = "model_not_found"
    default_remedy = "Give the path of a .gguf file; pp-smoke-run models fetch NAME prints that of a known model."


class ModelFetchFailed(EnvironmentFault):
    """The model could not be fetched from where it is published."""

    code = "model_fetch_failed"
    default_remedy = "Check the network and the proxy variables, or give --model PATH, a .gguf file here."


class ModelCorrupt(EnvironmentFault):
    """A file of the model has another size or checksum than it should have."""

    code = "model_corrupt"
    default_remedy = "Remove it with pp-smoke-run models remove, and fetch it again."


class GgufMalformed(EnvironmentFault):
    """The file is no GGUF, or breaks the rules of one."""

    code = "gguf_malformed"
    default_remedy = "Fetch the file again, or choose another model."


class GgufTruncated(GgufMalformed):
    """The GGUF file ends too early."""

    code = "gguf_truncated"


class UnsupportedModel(EnvironmentFault):
    """The model's architecture, tensor type or tokenizer is not one of those that can be served."""

    code = "unsupported_model"
    default_remedy = "Choose another model; pp-smoke-run models list shows some that work."


class ChatTemplateFailed(EnvironmentFault):
    """The model's chat template could not be applied; `--raw` does without it."""

    code = "chat_template_failed"
    default_remedy = "Give --raw to send the prompt without a template."


class CompilerUnavailable(EnvironmentFault):
    """No C compiler works here, and the CPU kernels need one."""

    code = "compiler_unavailable"
    default_remedy = "Run pp-smoke-run doctor: it tells which compiler was tried, and why it does not work."


class DeviceUnavailable(EnvironmentFault):
    """The device does not exist here or cannot compute."""

    code = "device_unavailable"
    default_remedy = "Run pp-smoke-run doctor, or choose another device with --device."


class NotEnoughMemory(EnvironmentFault):
    """A stage does not fit into the memory that is free."""

    code = "not_enough_memory"
    default_remedy = "Use a smaller model, more machines, or a lower --context."


class NotEnoughDisk(EnvironmentFault):
    """The disk has no room for the model."""

    code = "not_enough_disk"
    default_remedy = "Free some disk, or put the cache elsewhere with PP_SMOKE_CACHE."


class BadNodeEnvironment(EnvironmentFault):
    """A variable of `pp-gpu-node`'s or `pp-worker`'s environment is missing or makes no sense."""

    code = "bad_node_environment"


class RunFailed(PpError):
    """The run began and did not complete."""

    code = "run_failed"


class PlanInvalid(RunFailed):
    """The run's plan breaks a rule; a fault of this program."""

    code = "plan_invalid"
    default_remedy = "This is a fault of pp-smoke-run: run again with --debug and report what it prints."


class StageFaulted(RunFailed):
    """A stage reported a fault of its own."""

    code = "stage_faulted"
    default_remedy = _LOOK


class StageDied(RunFailed):
    """A stage's process ended."""

    code = "stage_died"
    default_remedy = _LOOK


class WorkerDied(RunFailed):
    """The worker process of a stage ended."""

    code = "worker_died"
    default_remedy = _LOOK


class WorkerFailed(RunFailed):
    """The worker of a stage answered a step with an error."""

    code = "worker_failed"
    default_remedy = _LOOK


class PeerLost(RunFailed):
    """A stage fell silent, or the link to it broke."""

    code = "peer_lost"
    default_remedy = _LOOK


class PeerLeft(PeerLost):
    """A member of the run left it."""

    code = "peer_left"


class LinkBroken(PeerLost):
    """A connection to a member of the run broke, and no other one could be had in time."""

    code = "link_broken"
    stalled_s = 0.0  # how long nothing had come when it was noticed, in seconds


class EdgeFaulted(RunFailed):
    """What came over an edge was not what was due, or the edge ended."""

    code = "edge_faulted"
    default_remedy = _LOOK


class JoinRefused(RunFailed):
    """A node was not let into the run: another token, version or place."""

    code = "join_refused"
    default_remedy = _LOOK


class OrchestratorLost(RunFailed):
    """A node lost its orchestrator; it is the node's error."""

    code = "orchestrator_lost"
    default_remedy = _LOOK


class DeadlineExceeded(RunFailed):
    """Something took longer than its deadline; the error names stage, peer, phase and the option."""

    code = "deadline_exceeded"
    default_remedy = _LOOK


class VerifyMismatch(RunFailed):
    """One process gives other tokens than the chain did."""

    code = "verify_mismatch"
    default_remedy = "Keep the run directory and report it: no number of stages may change the text."


class VastFailed(RunFailed):
    """A call to vast.ai failed."""

    code = "vast_failed"
    default_remedy = "Try again; vast-calls.log in the run directory has every call and its answer."


class VastKeyRejected(VastFailed):
    """vast.ai does not accept the key, or the key may not do this."""

    code = "vast_key_rejected"
    default_remedy = "Check the key on the account page of vast.ai; it needs to search, read and write instances."


class VastCreditTooLow(VastFailed):
    """The account has no credit, or met its spending limit."""

    code = "vast_credit_too_low"
    default_remedy = "Add credit to the vast.ai account, or lift its spending limit."


class VastRequestRefused(VastFailed):
    """vast.ai calls the request wrong."""

    code = "vast_request_refused"
    default_remedy = "Check the options that the sentence is about; vast.ai names them."


class VastRateLimited(VastFailed):
    """vast.ai was asked too often, for longer than was waited."""

    code = "vast_rate_limited"
    default_remedy = "Wait a few minutes; other programs that use the account count too."


class VastUnavailable(VastFailed):
    """vast.ai gives no answer, or none that can be read."""

    code = "vast_unavailable"
    default_remedy = "Try again in some minutes; check the network and the proxy variables."


class ListingIncomplete(VastFailed):
    """A listing of instances was not whole, so it proves nothing."""

    code = "listing_incomplete"
    default_remedy = "Try again; nothing may be concluded from a part of the list."


class CreateFailed(VastFailed):
    """An instance was not made, or may have been.

    `outcome` is `not_created`, `unknown` (the request may have taken effect: look its label up), or `created` (the
    answer is an error, yet names an instance: destroy `created_instance_id`). `try_another`: whether another offer may
    serve; False means that every create of this run would fail alike.
    """

    code = "create_failed"
    default_remedy = "Try again; vast-calls.log in the run directory has every call and its answer."

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
    """A relay does not answer, or too slowly."""

    code = "relay_unusable"
    default_remedy = "Name another relay with --relay-url."


class NotConfirmed(RunFailed):
    """The question before renting or destroying was not answered with yes."""

    code = "not_confirmed"


class TooFewOffers(RunFailed):
    """Fewer fitting machines are on offer than stages; a table says which filter removes how many."""

    code = "too_few_offers"
    default_remedy = "Ask for less with --min-download, --gpu or --country, raise --max-price, or use fewer stages."
    tail_title = "how many offers each filter rules out, and how many it alone does"


class HostFailed(RunFailed):
    """A rented machine failed before it was ready, and no replacement was left."""

    code = "host_failed"
    default_remedy = "Try again, another machine may do better; its log is in the run directory."


class LeftBehind(RunFailed):
    """Something that the run made could not be verified as gone; it is named."""

    code = "left_behind"


class LeasesLeft(LeftBehind):
    """A rented instance could not be verified as destroyed; it is named with its price."""

    code = "leases_left"
    exit_status = 4


class Interrupted(PpError):
    """A signal ended the run; `exit_status` is 128 plus its number."""

    code = "interrupted"

    def __init__(self, what: str, *, signal_number: int, **where: object) -> None:
        super().__init__(what, **where)  # type: ignore[arg-type]
        self.exit_status = 128 + signal_number


class RequestRejected(PpError):
    """The worker refused a request and lives on."""

    code = "request_rejected"


class MalformedRequest(RequestRejected):
    """The request is no JSON line or frame that the worker knows."""

    code = "malformed_request"


class WrongRole(RequestRejected):
    """The request is not for a stage of this role."""

    code = "wrong_role"


class BadPayload(RequestRejected):
    """The payload's size or values do not fit the request."""

    code = "bad_payload"


class UnknownRequest(RequestRejected):
    """The request continues one that the worker does not know."""

    code = "unknown_request"


class OutOfOrder(RequestRejected):
    """The request's position is not the next one."""

    code = "out_of_order"


class ContextExceeded(RequestRejected):
    """The request goes beyond the positions of the KV cache."""

    code = "context_exceeded"


def error_class(code: str) -> type[PpError] | None:
    """The class with this code, of those that can be made from a sentence alone; None for a code unknown here."""
    return _by_code(PpError).get(code)


def _by_code(base: type[PpError]) -> dict[str, type[PpError]]:
    found = {} if base is Interrupted else {base.code: base}
    for child in base.__subclasses__():
        found |= _by_code(child)
    return found
