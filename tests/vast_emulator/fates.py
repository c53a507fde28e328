"""What becomes of a scripted instance: its states over time, and its oddities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PULLING = "f1555660aa88: Pulling fs layer\n"
_DAEMON = "Error response from daemon: "


@dataclass(frozen=True, slots=True)
class Scene:
    """From `after_s` seconds of its life on, the row has these values."""

    after_s: float
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fate:
    """`scenes` in order of time. `listed_after_s`: no listing shows it before. `lives_s`: then it is gone by itself."""

    scenes: tuple[Scene, ...]
    listed_after_s: float = 0.0
    lives_s: float | None = None

    def values(self, age_s: float) -> dict[str, Any]:
        """All values that hold at that age, the latest of each."""
        merged: dict[str, Any] = {}
        for scene in self.scenes:
            if scene.after_s <= age_s:
                merged |= scene.values
        return merged


def _boot(*last: Scene, created_s: float = 2.0, loading_s: float = 4.0) -> tuple[Scene, ...]:
    return (
        Scene(0.0, {"actual_status": None, "status_msg": None, "ports": None}),
        Scene(created_s, {"actual_status": "created", "status_msg": "Creating container"}),
        Scene(loading_s, {"actual_status": "loading", "status_msg": _PULLING}),
        *last,
    )


def _stuck(status: str, message: str) -> Fate:
    return Fate(_boot(Scene(15.0, {"actual_status": status, "status_msg": message})))


_STOPPED = {"intended_status": "stopped", "cur_state": "stopped", "next_state": "stopped"}
_RUNNING = Scene(20.0, {"actual_status": "running", "status_msg": "success, running image/args"})

FATES: dict[str, Fate] = {
    "runs": Fate(_boot(_RUNNING)),
    "listed_late": Fate(_boot(_RUNNING), listed_after_s=12.0),
    "hangs": Fate(_boot()),
    "novel": Fate(_boot(Scene(10.0, {"actual_status": "migrating", "status_msg": "?"}), _RUNNING)),
    "exits": Fate(_boot(_RUNNING, Scene(24.0, {"actual_status": "exited", "status_msg": "success, exited (1)"}))),
    "offline": Fate(_boot(Scene(15.0, {"actual_status": "offline", "status_msg": "machine offline"}))),
    "offline_later": Fate(_boot(_RUNNING, Scene(60.0, {"actual_status": "offline"}))),
    "outbid": Fate(_boot(_RUNNING, Scene(40.0, {"actual_status": "stopped", "status_msg": "outbid", **_STOPPED}))),
    "queued": Fate(
        _boot(Scene(8.0, {"actual_status": "exited", "cur_state": "stopped", "status_msg": "state change queued."}))
    ),
    "label_lost": Fate((*_boot(_RUNNING), Scene(0.0, {"label": None}))),
    "dear": Fate((*_boot(_RUNNING), Scene(0.0, {"dph_total": 9.9}))),
    "small_disk": Fate((*_boot(_RUNNING), Scene(0.0, {"disk_space": 1.0}))),
    "vanishes": Fate(_boot(_RUNNING), lives_s=10.0),
    "cuda": _stuck(
        "created", f"{_DAEMON}OCI runtime create failed: nvidia-container-cli: unsatisfied condition: cuda>=12.8"
    ),
    "device": _stuck(
        "created", f"{_DAEMON}OCI runtime create failed: nvidia-container-cli: device error: unknown device"
    ),
    "no_space": _stuck("loading", "failed to register layer: write /x: no space left on device"),
    "eof": _stuck("loading", "failed to copy: unexpected EOF while reading"),
    "port_clash": _stuck("created", f"{_DAEMON}driver failed programming external connectivity on endpoint C.1"),
    "pull_limit": _stuck("loading", f"{_DAEMON}toomanyrequests: You have reached your pull rate limit."),
    "manifest": _stuck("loading", f"{_DAEMON}manifest for image not found: manifest unknown"),
    "denied": _stuck("loading", f"{_DAEMON}pull access denied for image, repository does not exist"),
    "entrypoint": _stuck("created", f"{_DAEMON}OCI runtime create failed: exec: stat x: no such file or directory"),
}
HOPELESS = frozenset({"manifest", "denied", "entrypoint"})
"""Those that another machine would share."""
