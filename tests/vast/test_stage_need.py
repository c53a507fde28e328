"""What a stage's machine must have, from the plan's own memory figures."""

from __future__ import annotations

from ppsmoke.stage_memory import StageMemory
from ppsmoke.vast.stage_need import stage_need, stage_needs

GB = 1000**3
MEMORY = StageMemory(file_bytes=2 * GB, weight_bytes=8 * GB, kv_bytes=GB, scratch_bytes=GB // 2)


def test_a_gpu_has_room_for_weights_cache_scratch_and_its_own_context() -> None:
    need = stage_need(3, MEMORY, image_gb=0.05)
    assert need.stage == 3
    assert MEMORY.total_bytes / 1000**2 + 500 < need.vram_mb < MEMORY.total_bytes / 1000**2 * 1.3


def test_a_longer_context_needs_more_and_a_smaller_share_less() -> None:
    longer = StageMemory(2 * GB, 8 * GB, 3 * GB, GB // 2)
    smaller = StageMemory(GB, 4 * GB, GB, GB // 2)
    sizes = [stage_need(0, memory, 0.05).vram_mb for memory in (smaller, MEMORY, longer)]
    assert sizes == sorted(set(sizes))


def test_the_disk_holds_the_stages_part_of_the_file_and_is_never_below_the_services_least() -> None:
    assert stage_need(0, StageMemory(0, 0, 0, 0), 0.05).disk_gb == 10
    assert stage_need(0, StageMemory(100 * GB, 0, 0, 0), 0.05).disk_gb >= 104


def test_the_traffic_counts_image_packages_and_the_stages_own_bytes() -> None:
    small, large = stage_need(0, MEMORY, 0.05), stage_need(0, MEMORY, 7.5)
    assert 2.05 < small.traffic.down_gb < 3
    assert large.traffic.down_gb - small.traffic.down_gb > 7


def test_every_stage_has_its_own_need() -> None:
    needs = stage_needs([MEMORY, StageMemory(GB, GB, GB, GB)], 0.05)
    assert [need.stage for need in needs] == [0, 1]
    assert needs[0].vram_mb != needs[1].vram_mb
