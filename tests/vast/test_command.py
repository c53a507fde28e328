"""`pp-smoke-run --vastai` up to the first create call, as a user meets it."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ppsmoke.vast.lease_labels import stage_label
from tests.cli.kit import PATIENCE_S, environment, run_cli
from tests.models.kit import file_server
from tests.transport.relay import relay
from tests.vast.commanding import STUB, Office, office
from tests.vast.emulated import KEY

RENT = ("--vastai", "-n", "3", *STUB)
NO_KEY = {"VAST_API_KEY": ""}


def test_a_plan_needs_no_key_and_rents_nothing(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        said = shop.run(*RENT, "--plan", **NO_KEY)
        assert (said.status, said.err) == (0, "")
        lines = said.out.splitlines()
        head = next(i for i, line in enumerate(lines) if line.startswith("stage  machine"))
        assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["0", "1", "2"]
        assert max(map(len, lines)) <= 80
        assert lines[-1].startswith("price ")
        assert " USD/h; about " in lines[-1]
        heard = {(call.call, call.key_shown) for call in shop.cloud.service.heard}
        assert heard == {("search", False)}
        assert shop.alive() == set()


def test_a_plan_as_json_has_stages_offers_and_price(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        body = shop.run(*RENT, "--plan", "--json", "--budget", "360", **NO_KEY).json
    assert len(body["plan"]["stages"]) == len(body["memory"]) == len(body["offers"]) == 3
    assert [row["stage"] for row in body["offers"]] == [0, 1, 2]
    assert len({row["machine_id"] for row in body["offers"]}) == 3
    price = body["price"]
    assert price["hours"] == 0.1
    assert price["price_per_hour_usd"] == pytest.approx(sum(row["price_per_hour_usd"] for row in body["offers"]))
    assert price["total_usd"] == pytest.approx(price["price_per_hour_usd"] * 0.1 + price["traffic_usd"])


def test_a_plan_with_a_key_warns_of_leftovers_and_one_that_cannot_look_still_plans(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        said = shop.run(*RENT, "--plan")
        assert said.err.startswith("warning: earlier runs left 1 rented instance")
        assert said.out.splitlines()[-1].startswith("price ")
        blind = shop.run(*RENT, "--plan", VAST_API_KEY="wrong")
        assert blind.status == 0
        assert blind.err.startswith("note: what earlier runs left is not known")


def test_filters_of_the_command_line_reach_the_market(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        wishes = ("--gpu", "RTX_4090", "--gpu", "RTX 3090", "--country", "ca,us", "--offers", "median")
        rows = shop.run(*RENT, *wishes, "--plan", "--json", **NO_KEY).json["offers"]
        cheapest = shop.run(*RENT, *wishes[:-1], "cheapest", "--plan", "--json", **NO_KEY).json["offers"]
    assert {row["gpu_name"] for row in rows} <= {"RTX 4090", "RTX 3090"}
    assert {row["country"] for row in rows} <= {"CA", "US"}
    assert sum(row["price_per_hour_usd"] for row in rows) > sum(row["price_per_hour_usd"] for row in cheapest)


def test_too_few_offers_come_with_a_table_of_the_filters_that_fits_80_columns(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        said = shop.run(*RENT, "--gpu", "A100 SXM4", "--country", "IS", "--min-reliability", "0.998")
        said.refused(1, "3 stages need a machine each", "nothing was rented", "| filter", "| GPU", "A100 SXM4")
        assert max(len(line) for line in said.err.splitlines() if line.startswith("    | ")) <= 80
        assert shop.calls("create") == 0


def test_the_price_of_all_together_has_a_bound(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        said = shop.run(*RENT, "--max-price", "0.2")
        said.refused(1, "USD an hour together, more than the 0.2 of --max-price", "nothing was rented")
        assert shop.calls("create") == 0


# ---- key and credit


def test_without_a_key_nothing_is_asked(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        shop.run(*RENT, **NO_KEY).refused(2, "There is no vast.ai key", "--api-key")
        assert shop.cloud.service.heard == []


def test_a_key_that_is_not_accepted_ends_it_and_is_not_repeated(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        shop.run(*RENT, "--api-key", "not-the-real-one").refused(1, "vast.ai does not accept the key")
        said = shop.run(*RENT, "--api-key", "not-the-real-one", "--debug", "--json")
        assert (said.status, said.json["error"]["code"]) == (1, "vast_key_rejected")
        assert "not-the-real-one" not in said.out + said.err
        assert shop.calls("create") == 0


def test_the_key_file_of_the_vast_cli_serves(tmp_path: Path) -> None:
    with office(tmp_path, "create:*=no_credit") as shop:
        file = tmp_path / "config" / "vastai" / "vast_api_key"
        file.parent.mkdir(parents=True)
        file.write_text(f"{KEY}\n")
        said = shop.run(*RENT, **NO_KEY)
        assert f"key from {file}, credit 25.00 USD" in said.err


def test_credit_is_looked_at_before_anything_is_rented(tmp_path: Path) -> None:
    with office(tmp_path, credit=0.01) as shop:
        shop.run(*RENT).refused(1, "the vast.ai account has 0.01 USD, and this run may need", "Add credit")
        assert shop.calls("create") == 0


def test_a_start_warns_of_what_earlier_runs_left(tmp_path: Path) -> None:
    with office(tmp_path, "create:*=no_credit") as shop:
        shop.rent(stage_label("ab" * 16, 0, "n"))
        said = shop.run(*RENT)
        assert "warning: earlier runs left 2 rented instances, " in said.err
        assert f"pp-smoke-run --teardown --vast-url {shop.cloud.url} shows and destroys them" in said.err


# ---- relays


@contextmanager
def no_relay(status: int) -> Iterator[str]:
    """What answers with `status`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_relay_that_is_none_is_refused_before_anything_is_rented(tmp_path: Path) -> None:
    with office(tmp_path) as shop, no_relay(404) as other:
        said = shop.run(*RENT, "--relay-url", other)
        said.refused(1, f"the relay {other} is no relay: it answered with status 404; nothing was rented")
        gone = shop.run(*RENT, "--relay-url", "http://127.0.0.1:9")
        gone.refused(1, "the relay http://127.0.0.1:9 cannot be reached", "--relay-url")
        assert shop.calls("create") == 0


def test_what_a_relay_is_worth_is_shown(tmp_path: Path) -> None:
    with office(tmp_path) as shop, relay() as good:
        said = shop.run(*RENT, "--relay-url", f"{good.url}/", "--max-spend", "0.01")
        assert re.search(rf"relay        {good.url} answers in .* and carries .* MB/s", said.err)


# ---- what the machines are to install


def test_a_package_that_is_not_on_the_index_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    with office(tmp_path) as shop, file_server() as index:
        said = shop.run(*RENT, "--yes", "--index-url", f"{index.url}/simple")
        said.refused(2, f"127.0.0.1:{index.port} has no package pp-smoke-run", "[package_missing]", "--ship")
        assert index.paths() == ["/simple/pp-smoke-run/"]
        assert shop.cloud.service.heard == []


def test_a_plan_and_an_image_that_may_bring_the_program_are_warned_of_a_package_that_is_not_there(
    tmp_path: Path,
) -> None:
    with office(tmp_path) as shop, file_server() as index:
        elsewhere = ("--index-url", f"{index.url}/simple")
        warning = f"warning: 127.0.0.1:{index.port} has no package pp-smoke-run"
        plan = shop.run(*RENT, *elsewhere, "--plan", **NO_KEY)
        assert plan.status == 0, plan.err
        assert plan.err.startswith(warning)
        assert plan.err.endswith("; --ship has them install what runs here\n")
        own = shop.run(*RENT, *elsewhere, "--image", "mine:1", "--image-gb", "1", "--max-spend", "0.001")
        own.refused(2, warning, "unless the image brings it", "--max-spend")
        assert shop.calls("create") == 0


def test_an_index_of_this_machine_is_none_for_rented_ones(tmp_path: Path) -> None:
    there = ("--vast-url", "https://vast.invalid", "--index-url", "http://localhost:1/simple")
    done = run_cli(environment(tmp_path, VAST_API_KEY=KEY), *RENT, "--yes", *there)
    assert done.returncode == 2, done.stderr
    assert "http://localhost:1/simple is an address of this machine" in done.stderr


# ---- the user's yes


def test_without_a_terminal_it_goes_on_within_max_spend_only(tmp_path: Path) -> None:
    with office(tmp_path, "create:*=no_credit") as shop:
        for more in ((), ("--yes",)):
            said = shop.run(*RENT, "--max-spend", "0.01", *more)
            said.refused(2, "more than the 0.01 of --max-spend; nothing was rented", "Raise --max-spend")
        assert shop.calls("create") == 0
        shop.run(*RENT).refused(1, "credit")
        assert shop.calls("create") == 1
        assert shop.alive() == set()


def refuse_at_the_terminal(shop: Office, answer: str) -> str:
    with shop.at_a_terminal(*RENT) as person:
        person.wait_for("[y/N] ")
        person.types(answer)
        said = person.end()
    said.refused(1, "you did not agree, and nothing was rented")
    return said.err


def test_anything_but_a_yes_rents_nothing(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        shown = refuse_at_the_terminal(shop, "n\n")
        assert "Rent these 3 machines, for about 0." in shown
        assert shown.index("price   ") < shown.index("Rent these")
        refuse_at_the_terminal(shop, "\n")
        refuse_at_the_terminal(shop, "\x04")  # the end of the input
        assert shop.calls("create") == 0


def test_a_yes_rents(tmp_path: Path) -> None:
    with office(tmp_path, "create:*=no_credit") as shop:
        with shop.at_a_terminal(*RENT, "--max-spend", "0.01") as person:
            person.wait_for("[y/N] ")
            person.types("y\n")
            said = person.end()
        assert said.status == 1
        assert "more than the 0.01 of --max-spend; at that it is ended" in " ".join(said.err.split())
        assert shop.calls("create") == 1


def test_a_signal_at_the_question_rents_nothing(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        with shop.at_a_terminal(*RENT) as person:
            person.wait_for("[y/N] ")
            person.process.terminate()
            said = person.end()
        said.refused(143, "interrupted by SIGTERM")
        assert shop.calls("create") == 0


@pytest.mark.parametrize("call", ["search", "list", "account"])
def test_ctrl_c_while_the_service_does_not_answer_ends_it_at_once(tmp_path: Path, call: str) -> None:
    with office(tmp_path, f"{call}:*=timeout_before") as shop:
        heard = shop.hears(call)
        with shop.at_a_terminal(*RENT, "--yes") as person:
            assert heard.wait(PATIENCE_S)
            person.process.send_signal(signal.SIGINT)
            said = person.end()
        said.refused(130, "interrupted by SIGINT")
        assert shop.calls("create") == 0


# ---- what makes no sense


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--image", "mine:1"), "the size of the image is not known"),
        (("--package", "pp-smoke-run"), "does not name one version"),
        (("--package", "pp-smoke-run==99"), "--package names version 99, and this is version"),
        (("--relay-url", "ftp://x"), "--relay-url 'ftp://x' is not the address of a relay"),
        (("--country", "Canada"), "--country 'Canada' is not a country's code"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_usage_errors_come_before_any_call(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    with office(tmp_path) as shop:
        shop.run(*RENT, *arguments).refused(2, says)
        assert shop.cloud.service.heard == []
