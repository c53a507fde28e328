"""`pp-gpu-node` started by hand: its exit statuses, its help, and what it does without its orchestrator."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge
from ppsmoke.membership import SwimMembership, stage_name
from ppsmoke.messages import (
    ControlMessage,
    EdgeKind,
    Generation,
    GgufSource,
    StageFault,
    StageReady,
    StopRun,
    decode_message,
    encode_message,
)
from ppsmoke.plan import GgufModelPlan, RunPlan, build_plan, inbound_provision, provision_stage
from ppsmoke.stage.settings import describe_variables
from ppsmoke.stub_model import STUB_EOS_TOKEN
from ppsmoke.transport import parse_ticket
from tests.e2e.kit import NODE, NOTICED_S, Box, Done, Program, wait_until
from tests.membership.kit import seed_member
from tests.transport.kit import PATIENCE_S, RUN_ID, TOKEN, Peer, id_of, key_of, peer, run_clean

MODEL = "stub:layers=8"
SCRIPT = (str(Path(NODE[0]).with_name("pp-gpu-node")),)


def settings_for(stage: int, seed: str, **more: str) -> dict[str, str]:
    return {
        "STAGE": str(stage),
        "NUM_STAGES": "2",
        "SEED_ADDR": seed,
        "PP_RUN_ID": RUN_ID,
        "PP_JOIN_TOKEN": TOKEN.hex(),
        "PP_NODE_KEY": key_of(f"stage {stage}").hex(),
        "PP_MODEL": MODEL,
        "PP_WORKER_STUB": "1",
        "PP_JOIN_TIMEOUT": "20",
        **more,
    }


def start(box: Box, stage: int, seed: str, **more: str) -> Program:
    return box.start(program=SCRIPT, env=settings_for(stage, seed, **more))


def test_a_node_that_a_public_port_leads_to_publishes_it(box: Box) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    mapped = {"PP_UDP_PORT": str(port), "PUBLIC_IPADDR": "203.0.113.20", "VAST_UDP_PORT_4433": "40213"}
    node = start(box, 1, a_ticket(), PP_FAR="1", PP_JOIN_TIMEOUT="30", **mapped)
    line = wait_until("its address", lambda: b"\n" in node.out and bytes(node.out))
    _, address = parse_ticket(line.decode().strip().partition("=")[2])
    addresses = [str(direct) for direct in address.direct_addresses()]
    assert "203.0.113.20:40213" in addresses
    assert any(direct.endswith(f":{port}") for direct in addresses)
    node.signal(signal.SIGKILL)
    node.end()


async def ended(node: Program) -> Done:
    return await asyncio.to_thread(node.end)


@asynccontextmanager
async def orchestrator(**options: Any) -> AsyncIterator[tuple[Peer, SwimMembership]]:
    async with peer("orchestrator", **options) as seed, seed_member(seed, 2) as membership:
        yield seed, membership


async def joined(membership: SwimMembership, stage: int) -> None:
    assert await membership.wait_name(stage_name(stage), deadline_s=PATIENCE_S) == id_of(f"stage {stage}")


def a_plan(seed: Peer) -> RunPlan:
    return build_plan(
        run_id=RUN_ID,
        model=GgufModelPlan(
            model_id=MODEL,
            gguf_source=GgufSource(kind="cache", key=MODEL),
            num_layers=8,
            hidden_dim=64,
            max_seq_len=2048,
            eos_token_ids=(STUB_EOS_TOKEN,),
        ),
        generation=Generation(max_tokens=4, eos_token_ids=(STUB_EOS_TOKEN,)),
        orchestrator_id=seed.id,
        node_ids=[id_of(f"stage {index}") for index in range(2)],
    )


async def tell(seed: Peer, stage: int, message: ControlMessage) -> None:
    await seed.mesh.send(id_of(f"stage {stage}"), "control", encode_message(message), deadline_s=PATIENCE_S)


async def provision(seed: Peer, membership: SwimMembership) -> None:
    for stage in range(2):
        await joined(membership, stage)
    plan = a_plan(seed)
    EdgeAcceptor(seed.mesh).expect(InboundEdge(RUN_ID, inbound_provision(plan.edge_of_kind(EdgeKind.TOKEN_OUT))))
    for stage in range(2):
        await tell(seed, stage, provision_stage(plan, stage))


def heard(seed: Peer, kind: type[ControlMessage]) -> list[Any]:
    messages = [decode_message(body) for _, channel, body in seed.events.messages if channel == "control"]
    return [message for message in messages if isinstance(message, kind)]


def test_stopped_by_its_orchestrator(box: Box) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, membership):
            nodes = [start(box, stage, seed.mesh.endpoint.ticket()) for stage in range(2)]
            await provision(seed, membership)
            # The first stage waits for a producer of prompts, which there is none.
            await seed.events.until(lambda: bool(heard(seed, StageReady)))
            assert heard(seed, StageReady)[0].stage_index == 1
            for stage in range(2):
                await tell(seed, stage, StopRun(run_id=RUN_ID, reason="enough"))
            for node in nodes:
                done = (await ended(node)).expect(0)
                assert done.text.startswith("PP_GPU_NODE_ADDR=endpoint")
                assert done.text.count("\n") == 1
                assert done.errors == []

    run_clean(work())


def test_a_file_is_touched_while_the_orchestrator_is_heard(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "heard"

    async def touched_again() -> None:
        os.utime(file, (1, 1))
        async with asyncio.timeout(PATIENCE_S):
            while file.stat().st_mtime < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def work() -> None:
        async with orchestrator() as (seed, membership):
            file.touch()
            node = start(box, 0, seed.mesh.endpoint.ticket(), PP_HEARD_FILE=str(file))
            await joined(membership, 0)
            for _ in range(2):
                await touched_again()
            await tell(seed, 0, StopRun(run_id=RUN_ID, reason="enough"))
            (await ended(node)).expect(0)

    run_clean(work())


def test_a_fault_of_the_stage(box: Box) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, membership):
            ticket = seed.mesh.endpoint.ticket()
            good = start(box, 0, ticket)
            bad = start(box, 1, ticket, PP_MODEL=MODEL + ",load_ms=500,load_fail=1")
            await provision(seed, membership)
            await seed.events.until(lambda: bool(heard(seed, StageFault)))
            (fault,) = heard(seed, StageFault)
            assert fault.stage_index == 1
            assert "told to fail while loading" in fault.reason
            for stage in range(2):
                await tell(seed, stage, StopRun(run_id=RUN_ID, reason="a fault"))
            (await ended(bad)).failed(1, "told to fail while loading")
            (await ended(good)).expect(0)

    run_clean(work())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"STAGE": ""}, ("STAGE is not set",)),
        ({"STAGE": "2"}, ("STAGE=2", "0 .. 1")),
        ({"STAGE": "-1"}, ("STAGE",)),
        ({"STAGE": "first"}, ("STAGE", "first")),
        ({"NUM_STAGES": ""}, ("NUM_STAGES is not set",)),
        ({"NUM_STAGES": "1", "STAGE": "0"}, ("NUM_STAGES",)),
        ({"SEED_ADDR": ""}, ("SEED_ADDR is not set",)),
        ({"SEED_ADDR": "nonsense"}, ("SEED_ADDR",)),
        ({"PEER_DIRECT": "nonsense"}, ("PEER_DIRECT",)),
        ({"PP_RUN_ID": "zz"}, ("PP_RUN_ID",)),
        ({"PP_JOIN_TOKEN": "abc"}, ("PP_JOIN_TOKEN",)),
        ({"PP_JOIN_TOKEN": ""}, ("PP_JOIN_TOKEN is not set",)),
        ({"PP_NODE_KEY": "hush"}, ("PP_NODE_KEY",)),
        ({"PP_MODEL": ""}, ("PP_MODEL is not set",)),
        ({"PP_CONTEXT": "0"}, ("PP_CONTEXT",)),
        ({"PP_JOIN_TIMEOUT": "0"}, ("PP_JOIN_TIMEOUT",)),
        ({"PP_READY_TIMEOUT": "soon"}, ("PP_READY_TIMEOUT",)),
        ({"PP_WORKER_STUB": "maybe"}, ("PP_WORKER_STUB",)),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_bad_environment(box: Box, change: dict[str, str], says: tuple[str, ...]) -> None:
    # An address that is well-formed and that nobody has.
    seed = a_ticket()
    done = start(box, 0, seed, **change).end()
    done.failed(2, *says)
    assert "  fix: " in done.err
    assert "Traceback" not in done.err
    # A secret is never printed.
    assert "hush" not in done.err
    assert TOKEN.hex() not in done.err


def a_ticket() -> str:
    """Of an endpoint that is gone."""

    async def work() -> None:
        async with peer("orchestrator") as seed:
            tickets.append(seed.mesh.endpoint.ticket())

    tickets: list[str] = []
    run_clean(work())
    return tickets[0]


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"PP_JOIN_TOKEN": "00" * 32}, {}, "token"),
        ({"PP_RUN_ID": "cd" * 16}, {}, "run"),
        ({}, {"tool_version": "99.0"}, "99.0"),
    ],
    ids=["wrong join token", "another run", "another version"],
)
def test_a_refused_join(box: Box, change: dict[str, str], options: dict[str, str], says: str) -> None:
    async def work() -> None:
        async with orchestrator(**options) as (seed, _):
            done = await ended(start(box, 0, seed.mesh.endpoint.ticket(), **change))
            done.failed(3, "refused", says)
            assert "Traceback" not in done.err

    run_clean(work())


def test_an_orchestrator_that_is_not_there(box: Box) -> None:
    done = start(box, 0, a_ticket(), PP_JOIN_TIMEOUT="1.5").end()
    done.failed(4, "orchestrator")
    assert "Traceback" not in done.err


def test_an_orchestrator_that_leaves(box: Box) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, membership):
            node = start(box, 0, seed.mesh.endpoint.ticket())
            await joined(membership, 0)
        (await ended(node)).failed(4, "the orchestrator is gone")

    run_clean(work())


def test_the_end_of_its_lifeline(box: Box) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, membership):
            reading, writing = os.pipe()
            env = settings_for(0, seed.mesh.endpoint.ticket(), PP_LIFELINE="1")
            node = box.start(program=SCRIPT, env=env, stdin=reading)
            os.close(reading)
            await joined(membership, 0)
            os.close(writing)
            done = await ended(node)
            done.failed(4, "the orchestrator's process is gone")

    run_clean(work())


def test_a_peer_address_on_the_lifeline_that_is_none_is_refused_as_in_the_environment(box: Box) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, _membership):
            reading, writing = os.pipe()
            env = settings_for(0, seed.mesh.endpoint.ticket(), PP_LIFELINE="1")
            node = box.start(program=SCRIPT, env=env, stdin=reading)
            os.close(reading)
            os.write(writing, b"\nsomething else\nPEER_DIRECT=nonsense\n")
            (await ended(node)).failed(2, "PEER_DIRECT")
            os.close(writing)

    run_clean(work())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_worker(box: Box, number: signal.Signals) -> None:
    async def work() -> None:
        async with orchestrator() as (seed, membership):
            node = start(box, 0, seed.mesh.endpoint.ticket(), PP_MODEL=MODEL + ",load_ms=600000")
            await joined(membership, 0)
            node.signal(number)
            await asyncio.to_thread(node.process.wait, NOTICED_S)
            await asyncio.to_thread(box.wait_gone)
            assert (await ended(node)).status != 0

    run_clean(work())


def test_help_explains_every_variable(box: Box) -> None:
    text = box.run("--help", program=SCRIPT).expect(0).text
    for name, about, _ in describe_variables():
        assert f"\n  {name} " in text
        assert about in text
    for status in ("0 stopped", "1 fault", "2 bad environment", "3 join refused", "4 orchestrator lost"):
        assert status in text


def test_an_argument_is_a_mistake(box: Box) -> None:
    done = box.run("--stage", "3", program=NODE).expect(2)
    assert "--stage" in done.err
