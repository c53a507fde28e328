"""`pp-smoke-run --vastai` in a lab: the caller, the service and each rented machine on a host of its own."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.stage.settings import MAPPED_UDP_PORT
from tests.e2e.kit import CLI, Box, Done, Program
from tests.netlab.town import Town
from tests.vast.emulated import KEY, Emulated, emulated
from tests.vast.rented import machines
from tests.vast_emulator.nodes import ProcessNodes
from tests.vast_emulator.server import Server, running
from tests.vast_emulator.service import Service

SCALE = 0.01
PATIENCE_S = 300.0


class Machines(ProcessNodes):
    """Instances that live on the hosts of a town: the one of stage i on host i.

    `mapped`: stages whose router really leads the port to them that the service says, and which are told its address.
    """

    def __init__(self, place: Town, path: str, more: Mapping[str, str], mapped: Collection[int] = ()) -> None:
        super().__init__(path)
        self._place = place
        self._more = dict(more)
        self._mapped = mapped

    def start(self, instance_id: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """See Nodes."""
        stage = int(environment["STAGE"])
        told = {}
        if stage in self._mapped:
            told = self._place.map_port(stage, int(environment[f"VAST_UDP_PORT_{MAPPED_UDP_PORT}"]))
        command = self._place.host_of(stage).command(*command)
        super().start(instance_id, command, {**environment, **told, **self._more})


@dataclass
class RentedChain:
    """A command that was run. `left`: what the service's ledger shows alive of it."""

    done: Done
    cloud: Emulated
    left: list[str] = field(default_factory=list)


def rent(
    place: Town,
    box: Box,
    folder: Path,
    *arguments: str,
    act: Callable[[Program], Done] | None = None,
    cache: Path | None = None,
    mapped: Collection[int] = (),
) -> RentedChain:
    """Run the command on the caller's host until its end; `act` may do things to it meanwhile. `mapped`: see Machines.

    The machines find this checkout, and the model cache of this one or `cache`, so that nothing is installed, and
    nothing fetched that is there.
    """
    folder.mkdir(exist_ok=True)
    certificate, context = _certificate(folder, place.service.address)
    trusted = {"SSL_CERT_FILE": str(certificate), "NO_PROXY": "*", "no_proxy": "*"}
    more = {**trusted, "PP_SMOKE_CACHE": str(cache or default_cache_dir()), "RUST_BACKTRACE": "0"}

    @contextmanager
    def serve(service: Service) -> Iterator[Server]:
        with place.service.inside():
            server = Server(service, address=place.service.address, tls=context)
        with running(server):
            yield server

    async def scenario() -> RentedChain:
        async with emulated(scale=SCALE, nodes=nodes, serve=serve) as cloud:
            program = box.start(
                *("--vastai", "--vast-url", cloud.url, "--time-scale", str(SCALE), "--relay-url", place.relay.url),
                *("--num-stages", str(len(place.stages)), *arguments),
                program=place.caller.command(*CLI),
                env={**more, "VAST_API_KEY": KEY},
            )
            done = await asyncio.to_thread(act or (lambda program: program.end(PATIENCE_S)), program)
            left = await asyncio.to_thread(cloud.left)
            return RentedChain(done, cloud, left)

    with machines(folder) as plain:
        nodes = Machines(place, plain.path, more, mapped)
        try:
            return asyncio.run(scenario())
        finally:
            nodes.close()


def _certificate(folder: Path, address: str) -> tuple[Path, ssl.SSLContext]:
    """Of a service at this address, signed by itself."""
    certificate, key = folder / "service.pem", folder / "service.key"
    if not certificate.exists():
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        made += ["-days", "2", "-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"]
        subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context
