"""The emulator itself: it answers as the service is known to, fails as it is told, and keeps its own book."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from ppsmoke.errors import CreateFailed
from ppsmoke.vast.records import CreateRequest
from tests.vast.emulated import KEY, RUN_ID, Emulated, emulated
from tests.vast_emulator import __main__ as emulator
from tests.vast_emulator.account import Account
from tests.vast_emulator.clock import ServiceClock
from tests.vast_emulator.fates import FATES
from tests.vast_emulator.faults import CALLS, FAULTS, FaultPlan, fitting, parse_faults
from tests.vast_emulator.ledger import Ledger, Life
from tests.vast_emulator.limits import RateLimits
from tests.vast_emulator.nodes import ProcessNodes
from tests.vast_emulator.query import BadQuery, search
from tests.vast_emulator.rows import make_offers

ROOT = Path(__file__).parents[2]
WISH = {"image": "x", "env": {}, "label": "mine", "disk": 10, "onstart": "bash", "args": ["-c", "echo up"]}


def raw(body: Callable[[Emulated, httpx.AsyncClient], Awaitable[None]], faults: str = "", **options: Any) -> None:
    """Calls without the product's client: no pacing, no judging."""

    async def main() -> None:
        async with emulated(faults, **options) as cloud:
            headers = {"Authorization": f"Bearer {KEY}"}
            transport = httpx.AsyncHTTPTransport(verify=False)
            async with httpx.AsyncClient(base_url=cloud.url, headers=headers, transport=transport, timeout=10) as http:
                await body(cloud, http)
            assert cloud.service.broken == []

    asyncio.run(main())


async def rent(http: httpx.AsyncClient, cloud: Emulated, index: int = 0, **changes: Any) -> httpx.Response:
    offer = list({x["machine_id"]: x for x in cloud.service.offers}.values())[index]
    return await http.put(f"/api/v0/asks/{offer['id']}/", json={**WISH, **changes})


async def listed(http: httpx.AsyncClient, **query: str) -> dict[str, Any]:
    response = await http.get("/api/v1/instances/", params=query)
    assert response.status_code == 200, response.text
    page: dict[str, Any] = response.json()
    return page


# ---- the market


def test_a_search_filters_orders_and_caps() -> None:
    offers = make_offers(200, seed=3)
    found = search(
        offers, {"gpu_name": {"in": ["RTX 4090"]}, "dph_total": {"lte": 0.4}, "order": [["dph_total", "asc"]]}
    )
    assert found
    prices = [x["dph_total"] for x in found]
    assert prices == sorted(prices)
    assert {x["gpu_name"] for x in found} == {"RTX 4090"}
    assert max(prices) <= 0.4
    assert len(search(offers, {"limit": 1000})) == 64
    places = search(offers, {"geolocation": {"notin": ["CN"]}, "verified": {"eq": True}})
    assert places
    assert not any(x["geolocation"].endswith("CN") for x in places)
    with pytest.raises(BadQuery, match="bogus is not a valid search key"):
        search(offers, {"bogus": {"eq": 1}})


def test_a_market_is_made_by_its_seed() -> None:
    assert make_offers(20, 1) == make_offers(20, 1)
    assert make_offers(20, 1) != make_offers(20, 2)
    machines = [x["machine_id"] for x in make_offers(20, 1)]
    assert len(set(machines)) < len(machines), "some machines have several offers"


def test_a_rented_machine_leaves_the_market() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        await rent(http, cloud)
        machine = cloud.service.offers[0]["machine_id"]
        rows = (await http.post("/api/v0/bundles/", json={})).json()["offers"]
        assert rows
        assert machine not in {x["machine_id"] for x in rows}
        taken = [await rent(http, cloud) for _ in range(4)]
        assert [x.status_code for x in taken] == [404, 410, 400, 200]
        assert all("no_such_ask" in x.text for x in taken)

    raw(body, limits=0.0)


# ---- instances


def test_an_instance_is_listed_runs_and_goes() -> None:
    async def main() -> None:
        async with emulated() as cloud, cloud.client() as client:
            request = CreateRequest("mine", "python:3.12-slim", 10.0, "echo up", {"STAGE": "3"})
            instance_id = await client.create(cloud.service.offers[0]["id"], request)
            seen = set()
            async with asyncio.timeout(30):
                while "running" not in seen:
                    mine = [x for x in await client.list_instances() if x.id == instance_id]
                    seen |= {x.actual_status for x in mine}
            assert mine[0].label == mine[0].first_label == "mine"
            assert mine[0].machine_id == cloud.service.offers[0]["machine_id"]
            assert mine[0].disk_gb == 10.0
            shown = await client.show_instance(instance_id)
            assert shown is not None
            assert shown.actual_status == "running"
            assert await client.instance_logs(instance_id) == f"instance {instance_id} started\n"
            assert await client.destroy(instance_id) == "accepted"
            assert await client.destroy(instance_id) == "no_such_instance"
            async with asyncio.timeout(30):
                while any(x.id == instance_id for x in await client.list_instances()):
                    pass
            assert await client.show_instance(instance_id) is None
            assert cloud.left() == []

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(FATES))
def test_every_fate_begins_without_a_status(name: str) -> None:
    first = FATES[name].values(0.0)
    assert first["actual_status"] is None
    assert first["ports"] is None
    assert [x.after_s for x in FATES[name].scenes[:3]] == [0.0, 2.0, 4.0]


def test_a_listing_comes_in_pages_of_25_under_the_right_token_name() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        for index in range(30):
            assert (await rent(http, cloud, index)).status_code == 200
        async with asyncio.timeout(30):
            while (first := await listed(http))["total_instances"] < 32:
                pass
        assert (len(first["instances"]), first["instances_found"]) == (25, 25)
        second = await listed(http, after_token=first["next_token"])
        assert len(second["instances"]) == 7
        assert second["next_token"] is None
        ids = [x["id"] for x in first["instances"] + second["instances"]]
        assert ids == sorted(set(ids))
        wrong = await listed(http, next_token=first["next_token"])
        assert wrong["instances"][0]["id"] == ids[0], "under another name it is page one again"
        assert first["label_counts"]["mine"] == 30
        assert len((await listed(http, limit="0"))["instances"]) == 5
        mine = await listed(http, select_filters='{"label": {"in": ["mine"]}}')
        assert mine["total_instances"] == 30
        for query in ({"select_filters": '{"dph_total": {"lte": 1}}'}, {"after_token": "zzz"}):
            assert (await http.get("/api/v1/instances/", params=query)).status_code == 400

    raw(body, limits=0.0)


def test_the_old_list_and_unknown_paths_are_refused() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        old = await http.get("/api/v0/instances/")
        assert (old.status_code, old.json()["error"]) == (410, "deprecated_endpoint")
        assert "html" in (await http.get("/nowhere")).headers["content-type"]

    raw(body)


def test_a_wrong_key_is_a_404_that_does_not_mean_gone() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        made = (await rent(http, cloud)).json()
        wrong = {"Authorization": "Bearer wrong"}
        for path in ("/api/v1/instances/", "/api/v0/users/current/"):
            answer = await http.get(path, headers=wrong)
            assert (answer.status_code, answer.json()["error"]) == (404, "auth_error")
        assert (await http.delete(f"/api/v0/instances/{made['new_contract']}/", headers=wrong)).status_code == 404
        assert len(cloud.left()) == 1
        # The container's own key ends its own instance, and no other.
        own = {"Authorization": f"Bearer {made['instance_api_key']}"}
        other = cloud.foreign[0]
        assert (await http.delete(f"/api/v0/instances/{other}/", headers=own)).status_code == 404
        assert (await http.delete(f"/api/v0/instances/{made['new_contract']}/", headers=own)).status_code == 200
        assert cloud.left() == []

    raw(body, limits=0.0)


def test_logs_are_uploaded_a_little_later_and_need_no_key() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        made = (await rent(http, cloud)).json()["new_contract"]
        url = (await http.put(f"/api/v0/instances/request_logs/{made}/", json={})).json()["result_url"]
        bare = {"Authorization": ""}
        first = await http.get(url, headers=bare)
        assert first.status_code in (200, 403)
        async with asyncio.timeout(30):
            while (answer := await http.get(url, headers=bare)).status_code == 403:
                assert "AccessDenied" in answer.text
        assert answer.text == f"instance {made} started\n"

    raw(body)


def test_a_request_that_is_wrong_is_refused() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        for wrong in ({"image": ""}, {"env": "-e A=1"}, {"args": ["-c", "x" * 5000]}):
            assert (await rent(http, cloud, **wrong)).json()["error"] == "invalid_args"
        assert cloud.left() == []

    raw(body, limits=0.0)


# ---- limits


def test_calls_that_come_too_early_are_refused_in_four_forms() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        assert (await rent(http, cloud)).status_code == 200
        refused = [await rent(http, cloud, 1) for _ in range(4)]
        assert {x.status_code for x in refused} == {429}
        assert len({x.text for x in refused}) == 4
        assert len(cloud.left()) == 1

    raw(body, scale=1.0)


def test_each_call_and_each_key_has_its_own_limit() -> None:
    limits = RateLimits()
    assert limits.refuse_s("destroy", "a", 0.0) is None
    assert limits.refuse_s("destroy", "a", 2.9) == 3.0
    assert limits.refuse_s("destroy", "b", 2.9) is None
    assert limits.refuse_s("list", "a", 2.9) is None
    assert limits.refuse_s("destroy", "a", 3.0) is None
    assert limits.refuse_s("create", "a", 0.0) is None
    assert limits.refuse_s("create", "a", 1.0) == 4.5
    assert limits.refuse_s("create", "a", 12.9) == 4.5, "too early once: shut out for 12 s"
    assert RateLimits(0.0).refuse_s("create", "a", 0.0) is None


# ---- faults


@pytest.mark.parametrize("name", [name for name in fitting("create") if FAULTS[name].answer is None])
def test_a_create_without_an_answer_may_have_had_its_effect(name: str) -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        fault = FAULTS[name]
        with pytest.raises(httpx.RemoteProtocolError if fault.drop else httpx.ReadTimeout):
            await http.put(f"/api/v0/asks/{cloud.service.offers[0]['id']}/", json=WISH, timeout=0.3)
        assert len(cloud.left()) == int(fault.effect)

    raw(body, f"create:1={name}")


@pytest.mark.parametrize("name", [name for name in fitting("create") if FAULTS[name].answer is not None])
def test_a_create_with_a_bad_answer_may_have_had_its_effect(name: str) -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        response = await rent(http, cloud)
        assert response.status_code == FAULTS[name].answer.status  # type: ignore[union-attr]
        assert len(cloud.left()) == int(FAULTS[name].effect)
        made = "new_contract" in response.text
        assert made == (name == "failed_but_made")
        assert (await rent(http, cloud, 1)).json()["success"] is True, "the next call is served"

    raw(body, f"create:1={name}", limits=0.0)


def test_odd_listings_prove_nothing() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        async with asyncio.timeout(30):
            while (await listed(http))["total_instances"] < 2:
                pass
        numbers = cloud.service.faults.counts["list"]
        names = ("short_page", "no_total", "same_page")
        rules = ",".join(f"list:{numbers + 1 + index}={name}" for index, name in enumerate(names))
        cloud.service.faults.rules = parse_faults(rules)
        short, no_total, same = [await listed(http) for _ in names]
        assert len(short["instances"]) < short["total_instances"]
        assert "total_instances" not in no_total
        again = await listed(http, after_token=same["next_token"])
        assert again["instances"] == same["instances"]

    raw(body, limits=0.0)


def test_a_destroy_may_lie() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        made = (await rent(http, cloud)).json()["new_contract"]
        assert (await http.delete(f"/api/v0/instances/{made}/")).json()["success"] is True
        assert len(cloud.left()) == 1

    raw(body, "destroy:1=lies")


def test_the_products_client_calls_the_faults_by_their_names() -> None:
    async def main() -> None:
        async with emulated("create:1=failed_but_made,create:2=offer_gone_200,create:3=empty_after") as cloud:
            async with cloud.client() as client:
                outcomes = []
                for offer in cloud.service.offers[:3]:
                    with pytest.raises(CreateFailed) as caught:
                        await client.create(offer["id"], CreateRequest("mine", "x", 10.0, "echo", {}))
                    outcomes.append((caught.value.outcome, caught.value.created_instance_id is not None))
            assert outcomes == [("created", True), ("not_created", False), ("unknown", False)]
            assert len(cloud.left()) == 2

    asyncio.run(main())


def test_faults_are_told_by_call_and_number() -> None:
    plan = FaultPlan(parse_faults("create:2=500, list:3+=html,destroy:1-2=empty,any:9=bad_key_401,host:2=hangs"))
    assert [plan.next("create") is FAULTS["500"] for _ in range(3)] == [False, True, False]
    assert [plan.next("list") is FAULTS["html"] for _ in range(4)] == [False, False, True, True]
    assert plan.next("destroy") is FAULTS["empty"]
    assert plan.next("show") is FAULTS["bad_key_401"]
    assert [plan.next_fate() for _ in range(3)] == ["runs", "hangs", "runs"]


@pytest.mark.parametrize("text", ["create", "create:2", "create:x=500", "make:1=500", "create:1=nothing", "host:1=500"])
def test_faults_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_faults(text)


def test_chaos_takes_only_what_a_call_can_meet() -> None:
    plan = FaultPlan(chaos=1.0)
    for call in CALLS:
        possible = {id(FAULTS[name]) for name in fitting(call)}
        assert {id(plan.next(call)) for _ in range(100)} <= possible
    assert "lies" not in fitting("create")
    assert "offer_gone_410" not in fitting("list")
    assert "500" in fitting("search")


# ---- the ledger


def test_the_ledger_bills_lives_by_the_second() -> None:
    ledger = Ledger([Life(1, "a", 3.6, 100.0, 200.0), Life(2, "b", 7.2, 150.0)])
    assert ledger.billed(0.0, 100.0) == 0
    assert ledger.billed(0.0, 250.0) == pytest.approx(0.1 + 0.2)
    assert ledger.billed(200.0, 250.0) == pytest.approx(0.1)
    assert [x.instance_id for x in ledger.alive()] == [2]
    ledger.close(2, 250.0)
    assert ledger.billed(250.0, 9999.0) == 0


# ---- instances that are processes


def test_an_instance_can_be_the_very_script_it_was_sent() -> None:
    script = 'echo "stage $STAGE of instance $CONTAINER_ID in $PWD"; setsid sleep 1000 & echo child $!; sleep 1000'

    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        made = (await rent(http, cloud, env={"STAGE": "2", "-p 80:80": "1"}, args=["-c", script])).json()[
            "new_contract"
        ]
        rental = cloud.service.account.rentals[made]
        async with asyncio.timeout(30):
            while "child" not in (text := cloud.service.account.output(rental)):
                await listed(http)
        assert f"stage 2 of instance {made} in " in text
        child = psutil.Process(int(text.split()[-1]))
        await http.delete(f"/api/v0/instances/{made}/")
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    real(body)


def test_a_container_is_told_the_public_number_of_a_port_that_was_asked_for() -> None:
    account = Account(ServiceClock(1.0), 1)
    wish = {"env": {"-p 4433:4433/udp": "1", "-p 80:80": "1", "-h": "name"}}
    told = account._environment(account.rent(make_offers(1, 1)[0], wish, "runs", 0.0))
    ports = {name: value for name, value in told.items() if name.startswith("VAST_") and "_PORT_" in name}
    assert set(ports) == {"VAST_UDP_PORT_4433", "VAST_TCP_PORT_80"}
    assert all(40000 <= int(port) < 50000 for port in ports.values())


def test_an_instance_whose_script_ends_is_shown_as_exited() -> None:
    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        made = (await rent(http, cloud, args=["-c", "exit 3"])).json()["new_contract"]
        async with asyncio.timeout(30):
            while True:
                rows = {x["id"]: x for x in (await listed(http))["instances"]}
                if made in rows and rows[made]["actual_status"] == "exited":
                    break
        assert rows[made]["status_msg"] == "success, exited (3)"

    real(body)


def test_an_instance_can_end_itself_with_its_own_key() -> None:
    program = (
        "import os, urllib.request as r\n"
        "url = os.environ['API'] + '/api/v0/instances/' + os.environ['CONTAINER_ID'] + '/'\n"
        "head = {'Authorization': 'Bearer ' + os.environ['CONTAINER_API_KEY']}\n"
        "r.urlopen(r.Request(url, b'{}', head, method='DELETE'))\n"
    )

    async def body(cloud: Emulated, http: httpx.AsyncClient) -> None:
        wish = {"env": {"API": cloud.url}, "onstart": sys.executable, "args": ["-c", program]}
        assert (await rent(http, cloud, **wish)).status_code == 200
        async with asyncio.timeout(30):
            while cloud.left():
                await listed(http)

    real(body)


def real(body: Callable[[Emulated, httpx.AsyncClient], Awaitable[None]]) -> None:
    nodes = ProcessNodes()
    try:
        raw(body, nodes=nodes, limits=0.0)
    finally:
        nodes.close()


# ---- the program


def test_the_program_serves_and_reports_its_ledger() -> None:
    command = [sys.executable, "-m", "tests.vast_emulator", "--scale", "0.01", "--seed", "4", "--offers", "9"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes) as program:  # type: ignore[call-overload]
        try:
            url = program.stdout.readline().strip().removeprefix("VAST_URL=")
            with httpx.Client(base_url=url, trust_env=False, headers={"Authorization": "Bearer emulated-key"}) as http:
                offers = http.post("/api/v0/bundles/", json={}).json()["offers"]
                assert len({x["id"] for x in offers}) == 9
                made = http.put(f"/api/v0/asks/{offers[0]['id']}/", json=WISH | {"label": RUN_ID}).json()[
                    "new_contract"
                ]
            program.send_signal(signal.SIGINT)
            said, shown = program.communicate(timeout=30)
        finally:
            program.kill()
    assert program.returncode == 1, "one is alive"
    assert f"instance {made}  {RUN_ID}" in said
    assert "1 rented, 1 alive" in said
    assert "create 1" in shown


def test_the_program_says_how_to_rent_from_it_and_refuses_a_port_that_is_in_use() -> None:
    command = [sys.executable, "-m", "tests.vast_emulator", "--key", "my key", "--scale", "0.5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as program:  # type: ignore[call-overload]
        try:
            url = program.stdout.readline().strip().removeprefix("VAST_URL=")
            port = url.rpartition(":")[2]
            second = subprocess.run(
                [*command, "--port", port], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
            )
            program.send_signal(signal.SIGINT)
            _, shown = program.communicate(timeout=30)
        finally:
            program.kill()
    assert f"pp-smoke-run --vastai -n 3 --vast-url {url} --api-key 'my key' --time-scale 0.5 --model" in shown
    assert (second.returncode, len(second.stderr.splitlines())) == (1, 1)
    assert f"port {port} cannot be had" in second.stderr
    assert "EMULATOR='--port N'" in second.stderr


def test_the_ledger_comes_before_the_machines_files_are_removed_and_ctrl_c_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nodes(ProcessNodes):
        """Its machines left files, and a second Ctrl-C comes when they are to be removed."""

        def close(self) -> None:
            assert "0 rented, 0 alive" in capsys.readouterr().out
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("Ctrl-C is not heard")

    monkeypatch.setattr(emulator, "ProcessNodes", Nodes)
    monkeypatch.setattr(sys, "argv", ["emulator", "--real"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(emulator, "_how_to_rent", lambda *_: signal.raise_signal(signal.SIGINT))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert emulator.main() == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    (root,) = tmp_path.iterdir()
    assert f"left: {root}" in capsys.readouterr().err


def test_the_program_names_its_faults_and_refuses_others() -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.vast_emulator", *options]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert "timeout_after" in run("--list-faults").stdout
    refused = run("--faults", "create:1=nonsense")
    assert refused.returncode == 2
    assert "'nonsense' is none of" in refused.stderr
