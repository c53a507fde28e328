"""The table of states and of bad status messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.vast.instance_state import Readiness, bad_message, judge, running_deadline_s
from ppsmoke.vast.records import Instance, parse_instance, rows_of
from tests.vast.kit import sample_body, samples

WAIT, READY, FAILED = Readiness.WAIT, Readiness.READY, Readiness.FAILED

# sample -> (readiness, another host helps, in the reason)
TABLE = {
    "instance_null_status": (WAIT, True, "being set up"),
    "instance_created": (WAIT, True, "starting its container"),
    "instance_loading_pull": (WAIT, True, "Pulling fs layer"),
    "instance_loading_frozen": (WAIT, True, "Download complete"),
    "instance_rebooting": (WAIT, True, "rebooting"),
    "instance_novel_status": (WAIT, True, "'migrating'"),
    "instance_running": (READY, True, "running"),
    "instance_as_list_shape": (READY, True, "running"),
    "instance_exited": (FAILED, True, "container ended"),
    "instance_stopped": (FAILED, True, "stopped"),
    "instance_stopped_outbid": (FAILED, True, "outbid"),
    "instance_scheduling": (FAILED, True, "put off"),
    "instance_frozen": (FAILED, True, "frozen"),
    "instance_offline": (FAILED, True, "offline"),
    "instance_unknown": (FAILED, True, "stopped reporting"),
    "instance_wrong_disk": (FAILED, True, "10 GB of disk, 16 were asked for"),
    "instance_err_manifest": (FAILED, False, "no such tag"),
    "instance_err_pull_denied": (FAILED, False, "private"),
    "instance_err_entrypoint": (FAILED, False, "cannot run the start command"),
    "instance_err_toomanyrequests": (FAILED, True, "registry limits"),
    "instance_err_cuda": (FAILED, True, "driver is too old"),
    "instance_err_port_clash": (FAILED, True, "ports are taken"),
    "instance_err_no_space": (FAILED, True, "disk is full"),
    "instance_err_eof": (FAILED, True, "broke the image pull"),
}


def sampled(name: str) -> Instance:
    rows = rows_of(sample_body(name)["instances"])
    assert rows is not None
    return parse_instance(rows[0])


@pytest.mark.parametrize("name", TABLE)
def test_each_state_has_its_verdict(name: str) -> None:
    readiness, helps, words = TABLE[name]
    verdict = judge(sampled(name), wanted_disk_gb=16)
    assert (verdict.readiness, verdict.another_host_helps) == (readiness, helps)
    assert words in verdict.reason


def test_no_state_of_the_samples_is_left_out() -> None:
    states = {name for name in samples() if name.startswith("instance_")}
    assert states - set(TABLE) == {"instance_gone_null", "instance_404_no_such_instance"}


@pytest.mark.parametrize("status", ["destroyed", "terminated"])
def test_the_services_other_words_for_gone_are_failures(status: str) -> None:
    assert judge(replace(sampled("instance_running"), actual_status=status)).readiness is FAILED


def test_a_running_machine_may_stop_reporting_for_a_moment() -> None:
    unknown = sampled("instance_unknown")
    assert judge(unknown).readiness is FAILED
    assert judge(unknown, was_ready=True).readiness is WAIT


def test_a_machine_that_ran_and_ended_has_failed() -> None:
    assert judge(sampled("instance_exited"), was_ready=True).readiness is FAILED


def test_running_against_the_intention_is_not_ready() -> None:
    stopping = replace(sampled("instance_running"), intended_status="stopped")
    assert judge(stopping).readiness is FAILED


def test_running_is_ready_whatever_an_old_message_says() -> None:
    message = "Error response from daemon: no space left on device"
    assert judge(replace(sampled("instance_running"), status_msg=message)).readiness is READY


def test_a_message_that_a_terminal_would_obey_is_not_passed_on() -> None:
    exited = replace(sampled("instance_exited"), status_msg="it \x1b[2J broke\r\n")
    assert judge(exited).reason.endswith("(it [2J broke)")


def test_a_row_of_nulls_is_waited_for() -> None:
    assert judge(parse_instance({"id": 5})).readiness is WAIT


def test_a_disk_a_little_under_the_wish_is_enough() -> None:
    assert judge(replace(sampled("instance_running"), disk_gb=15.5), wanted_disk_gb=16).readiness is READY
    assert judge(replace(sampled("instance_running"), disk_gb=None), wanted_disk_gb=16).readiness is READY


# (message, in the cause, another host helps)
BAD = [
    ("manifest for x/y:z not found", "no such tag", False),
    ("Error: MANIFEST UNKNOWN", "no such tag", False),
    ("unauthorized: authentication required", "private", False),
    ("requested access to the resource is denied", "private", False),
    ("toomanyrequests: unauthenticated pulls; requested access is denied", "registry limits", True),
    ("OCI runtime create failed: exec format error", "cannot run", False),
    ('OCI runtime create failed: exec: "bash": executable file not found', "cannot run", False),
    (
        "OCI runtime create failed: nvidia-container-cli: mount error: stat failed: /dev/nvidia0: no such file",
        "hand its GPU",
        True,
    ),
    ("could not select device driver with capabilities: [[gpu]]", "hand its GPU", True),
    ("failed to inject CDI devices: unresolvable CDI devices", "hand its GPU", True),
    ("OCI runtime create failed: unable to start\nexec: not found", "cannot run", False),
    ("OCI runtime create failed: something new", "could not start it", True),
    ("net/http: TLS handshake timeout", "network broke", True),
    ("read tcp 10.0.0.2: connection reset by peer", "network broke", True),
    ("Error response from daemon: something new", "could not start it", True),
    ("failed to register layer: something new", "could not start it", True),
]


@pytest.mark.parametrize(("message", "words", "helps"), BAD, ids=[row[0][:40] for row in BAD])
def test_each_bad_message_names_its_cause(message: str, words: str, helps: bool) -> None:
    found = bad_message(message)
    assert found is not None
    assert words in found[0]
    assert found[1] is helps


@pytest.mark.parametrize(
    "message",
    [
        "",
        "success, running python_3.12/args",
        "Creating container",
        "a1b2: Pulling fs layer",
        "a1b2: Verifying Checksum",
        "a1b2: Pull complete",
        "a1b2: Retrying in 5 seconds",
        "Status: Downloaded newer image for errors/failed:latest",
        "0 errors so far",
    ],
)
def test_ordinary_progress_is_no_alarm(message: str) -> None:
    assert bad_message(message) is None


def test_a_long_message_keeps_its_end() -> None:
    reason = judge(sampled("instance_err_cuda")).reason
    assert "\n" not in reason
    assert len(reason) < 250
    assert "containers: C.41873205" in reason


def test_the_deadline_for_running_grows_with_the_image() -> None:
    assert running_deadline_s(0.05, 500) == 300
    assert running_deadline_s(7.5, 100) > 3000
    assert running_deadline_s(7.5, 1000) == pytest.approx(540)
    assert running_deadline_s(7.5, 0) == 300
