"""The start script, run by a real shell in a box of a few tools: what it installs, starts, and how the box ends."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import psutil
import pytest

from ppsmoke.vast.records import MAX_SCRIPT_CHARS
from ppsmoke.vast.start_script import start_script

TOOLS = ("bash", "sh", "cat", "env", "kill", "mkdir", "rm", "stat", "touch")
PATIENCE_S = 30.0

NODE = """#!/bin/sh
[ "$1" = --version ] && { echo "pp-gpu-node ${FAKE_VERSION:-1.2.3}"; exit; }
env >"$HOME/node-env"
"""
PYTHON = """#!/bin/sh
echo "$*" >>"$HOME/python-calls"
case "$1 $2" in
  "-m venv")
    [ -n "$NO_VENV" ] && exit 1
    mkdir -p "$3/bin"
    cat >"$3/bin/pip" <<'END'
#!/bin/sh
echo "$*" >>"$HOME/pip-calls"
[ -e "$HOME/no-index" ] && { rm "$HOME/no-index"; exit 1; }
cat "$HOME/node" >"$HOME/pp-smoke-run/venv/bin/pp-gpu-node"
chmod +x "$HOME/pp-smoke-run/venv/bin/pp-gpu-node"
END
    printf '#!/bin/sh\nexec REAL "$@"\n' >"$3/bin/python"
    chmod +x "$3/bin/pip" "$3/bin/python" ;;
  "-c import venv"*) ;;
  *) exec REAL "$@" ;;
esac
"""
# A tick of the watcher takes no time worth mentioning; during the first HEARD_TICKS the node hears something.
SLEEP = """#!/bin/sh
[ "$1" = 1 ] || exec REAL "$@"
ticks=$(($(cat "$HOME/ticks" 2>/dev/null || echo 0) + 1))
echo $ticks >"$HOME/ticks"
[ $ticks -le "${HEARD_TICKS:-0}" ] && touch "$PP_HEARD_FILE"
exec REAL 0.02
"""


class Service:
    """Answers DELETE and keeps what was asked, and at which of the box's ticks."""

    def __init__(self, home: Path) -> None:
        self.asked: Queue[tuple[str, str | None, str]] = Queue()
        self.ticks: list[int] = []
        self.status = 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                service.ticks.append(int((home / "ticks").read_text() or 0))
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                service.asked.put((self.path, self.headers.get("authorization"), body))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Box:
    """A home, a PATH with only the tools it is given, and the script's process."""

    def __init__(self, home: Path, service: Service) -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        for tool in (*TOOLS, "chmod"):
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)
        self.environ = {
            "PATH": str(self.bin),
            "HOME": str(home),
            "STAGE": "1",
            "NUM_STAGES": "3",
            "PP_VERSION": "1.2.3",
            "PP_PACKAGE": "pp-smoke-run==1.2.3",
            "PP_ORPHAN_TIMEOUT": "600",
            "PP_VAST_URL": service.url,
            "CONTAINER_ID": "77",
            "CONTAINER_API_KEY": "container-key",
        }
        self.add("sleep", SLEEP.replace("REAL", str(shutil.which("sleep"))))
        self.add("python3", PYTHON.replace("REAL", sys.executable))

    def add(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, **environ: str) -> None:
        with (self.home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", start_script()],
                env=self.environ | environ,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return (self.home / "log").read_text()

    def wait_for(self, text: str) -> str:
        return self.wait_for_file("log", text)

    def wait_for_file(self, name: str, text: str = "") -> str:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with suppress(FileNotFoundError):
                found = (self.home / name).read_text()
                if text in found:
                    return found
            time.sleep(0.02)
        raise AssertionError(f"{text!r} is not in {name}; log:\n{self.log()}")

    def close(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.close()


@pytest.fixture
def box(tmp_path: Path, service: Service) -> Iterator[Box]:
    box = Box(tmp_path, service)
    yield box
    box.close()


def test_the_script_is_short_enough_and_parses() -> None:
    assert len(start_script()) < MAX_SCRIPT_CHARS
    subprocess.run(["bash", "-n"], input=start_script(), text=True, check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say() -> None:
    found = subprocess.run(["shellcheck", "-s", "bash", "-"], input=start_script(), text=True, capture_output=True)
    assert found.stdout == ""


def test_a_ready_image_starts_its_node_without_installing_anything(box: Box) -> None:
    box.add("pp-gpu-node", NODE)
    box.start()
    log = box.wait_for("pp-gpu-node ended with status 0")
    assert "starting stage 1 of 3" in log
    assert "installing" not in log
    environ = dict(line.split("=", 1) for line in (box.home / "node-env").read_text().splitlines() if "=" in line)
    assert (environ["STAGE"], environ["NUM_STAGES"]) == ("1", "3")
    assert "CONTAINER_API_KEY" not in environ, "the node needs no key to the instance"
    assert Path(environ["PP_HEARD_FILE"]).exists()


def test_another_version_in_the_image_is_not_used(box: Box) -> None:
    box.add("pp-gpu-node", NODE)
    (box.home / "node").write_text(NODE)
    box.start(FAKE_VERSION="1.0", PP_VERSION="1.0")
    box.wait_for("ended with status 0")
    box.close()
    box.start(PP_VERSION="9.9")
    assert "installing" in box.wait_for("the installation failed"), "what was installed is not 9.9 either"


def test_the_pinned_version_is_installed_and_a_failed_try_is_repeated(box: Box) -> None:
    (box.home / "node").write_text(NODE)
    (box.home / "no-index").touch()
    box.add("sleep", '#!/bin/sh\n[ "$1" = 5 ] && exit\nexec ' + f'{shutil.which("sleep")} "$@"\n')
    box.start(PP_INDEX_URL="https://index.test/simple")
    log = box.wait_for("ended with status 0")
    assert "installing pp-smoke-run==1.2.3" in log
    calls = (box.home / "pip-calls").read_text().splitlines()
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert calls[0].startswith("install --index-url https://index.test/simple ")
    assert calls[0].endswith(" pp-smoke-run==1.2.3")


def test_a_node_that_is_never_heard_of_ends_the_instance(box: Box, service: Service) -> None:
    box.add("pp-gpu-node", NODE)
    box.start(PP_ORPHAN_TIMEOUT="5")
    asked = service.asked.get(timeout=PATIENCE_S)
    assert asked == ("/api/v0/instances/77/", "Bearer container-key", "{}")
    assert service.asked.get(timeout=PATIENCE_S) == asked, "it asks again until it is ended"
    assert service.ticks[0] >= 5
    assert "container-key" not in box.log()


def test_a_service_that_refuses_is_asked_again(box: Box, service: Service) -> None:
    box.add("pp-gpu-node", NODE)
    service.status = 429
    box.start(PP_ORPHAN_TIMEOUT="1")
    for _ in range(3):
        service.asked.get(timeout=PATIENCE_S)
    log = box.wait_for("that failed: HTTP Error 429")
    assert "asked for the end" not in log
    assert "Traceback" not in log


def test_the_switch_is_armed_before_the_installation(box: Box, service: Service) -> None:
    box.start(NO_VENV="1", PP_ORPHAN_TIMEOUT="1")
    box.wait_for("the installation failed")
    assert service.asked.get(timeout=PATIENCE_S)[0] == "/api/v0/instances/77/"
    assert not (box.home / "node-env").exists()


def test_a_box_whose_installation_hangs_ends_too(box: Box, service: Service) -> None:
    hanging = PYTHON.replace("REAL", sys.executable).replace('[ -n "$NO_VENV" ] && exit 1', "exec sleep 60")
    box.add("python3", hanging)
    box.start(PP_ORPHAN_TIMEOUT="1")
    assert service.asked.get(timeout=PATIENCE_S)[0] == "/api/v0/instances/77/"


def test_while_the_node_hears_something_the_instance_lives(box: Box, service: Service) -> None:
    box.add("pp-gpu-node", NODE)
    box.start(PP_ORPHAN_TIMEOUT="3", HEARD_TICKS="20")
    assert service.asked.get(timeout=PATIENCE_S)[0] == "/api/v0/instances/77/"
    assert service.ticks[0] >= 23
    assert "pp-gpu-node ended with status 0" in box.log()
    assert box.process is not None
    assert box.process.poll() is None, "the box is kept for its logs after its node ended"


def test_without_python_the_end_is_asked_for_with_curl(box: Box) -> None:
    (box.bin / "python3").unlink()
    box.add("pp-gpu-node", NODE)
    box.add("curl", '#!/bin/sh\n{ echo "$*"; cat; } >>"$HOME/curl-calls"\n')
    box.start(PP_ORPHAN_TIMEOUT="1", CONTAINER_ID="", VAST_CONTAINERLABEL="C.78")
    called = box.wait_for_file("curl-calls", "container-key")
    assert "-X DELETE" in called
    assert "/api/v0/instances/78/" in called
    assert "Authorization: Bearer container-key" in called.splitlines()
    assert "container-key" not in called.splitlines()[0], "the key is not among the arguments, where `ps` shows it"


def test_a_box_without_its_key_says_so(box: Box) -> None:
    box.add("pp-gpu-node", NODE)
    box.start(CONTAINER_API_KEY="")
    box.wait_for("this box cannot end itself")
    box.wait_for("ended with status 0")


def test_values_that_came_in_parts_are_joined(box: Box) -> None:
    box.add("pp-gpu-node", NODE)
    box.start(PP_LONG="SEED_ADDR:3 PP_MODEL:1", SEED_ADDR_0="one ", SEED_ADDR_1="$two", SEED_ADDR_2="*", PP_MODEL_0="m")
    box.wait_for("ended with status 0")
    environ = (box.home / "node-env").read_text().splitlines()
    assert "SEED_ADDR=one $two*" in environ
    assert "PP_MODEL=m" in environ


def test_being_stopped_ends_everything(box: Box) -> None:
    box.add("pp-gpu-node", NODE + 'echo $$ >"$HOME/node-pid"; exec sleep 60\n')
    box.start()
    pid = int(box.wait_for_file("node-pid", "\n"))
    assert box.process is not None
    assert pid in alive(box.process.pid)
    box.process.terminate()
    assert box.process.wait(PATIENCE_S) == 143
    end = time.monotonic() + PATIENCE_S
    while (left := alive(box.process.pid)) and time.monotonic() < end:
        time.sleep(0.02)
    assert left == []


def alive(group: int) -> list[int]:
    """The processes of this group that still run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def test_the_callers_own_code_is_read_from_the_caller_whatever_is_there(box: Box) -> None:
    box.add("pp-gpu-node", NODE)  # of the very version
    (box.home / "node").write_text(NODE)
    box.start(PP_BOOTSTRAP=packed('print(sys.argv[1] + "/own.whl")'), PP_BOOTSTRAP_NEEDS="iroh==9")
    assert "installing the code of the caller as pp-smoke-run==1.2.3" in box.wait_for("ended with status 0")
    calls = (box.home / "pip-calls").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == ["iroh==9", f"{box.home}/pp-smoke-run/own.whl"]


def test_code_that_cannot_be_read_is_an_installation_that_failed(box: Box) -> None:
    box.add("sleep", f'#!/bin/sh\n[ "$1" = 5 ] || [ "$1" = 15 ] && exit\nexec {shutil.which("sleep")} "$@"\n')
    box.start(PP_BOOTSTRAP=packed('sys.exit("the caller refused")'), PP_BOOTSTRAP_NEEDS="iroh==9")
    assert box.wait_for("the installation failed").count("the caller refused") == 3
    assert not (box.home / "node-env").exists()


def packed(program: str) -> str:
    return base64.b64encode(zlib.compress(program.encode())).decode()
