from __future__ import annotations

import pytest

from ppsmoke.membership.swim import LOCAL, MAX_ADDRESS_BYTES, MAX_MESSAGE_BYTES, WAN, SwimConfig, cluster_tag, wire
from tests.membership.swim.kit import claim


@pytest.mark.parametrize("config", [LOCAL, WAN, SwimConfig()])
def test_every_pair_of_bounds_is_in_order_and_the_direct_wait_is_the_shorter(config: SwimConfig) -> None:
    for floor, ceiling in (config.direct_timeout_s, config.probe_timeout_s, config.suspicion_s):
        assert 0 < floor <= ceiling
    assert config.direct_timeout_s[0] < config.probe_timeout_s[0]
    assert config.direct_timeout_s[1] < config.probe_timeout_s[1]
    assert config.late_s < config.probe_timeout_s[0] < config.suspicion_s[0]


@pytest.mark.parametrize(("config", "bound_s"), [(LOCAL, 3.0), (WAN, 35.0)])
def test_a_lone_witness_takes_no_longer_than_promised(config: SwimConfig, bound_s: float) -> None:
    assert config.probe_interval_s + config.probe_timeout_s[0] + config.suspicion_s[1] < bound_s


def test_a_record_with_the_longest_address_fits_every_message_that_must_carry_one() -> None:
    record = wire.claim_bytes(claim(1, "suspect", address=b"x" * MAX_ADDRESS_BYTES, accuser="0" * 64))
    assert wire.HEAD_BYTES + 5 + record <= MAX_MESSAGE_BYTES


def test_a_cluster_tag_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        SwimConfig(cluster=b"short")


def test_cluster_tags_differ_with_every_part_and_with_where_a_part_ends() -> None:
    tags = {
        cluster_tag(b"run", b"token"),
        cluster_tag(b"run", b"tokem"),
        cluster_tag(b"runt", b"oken"),
        cluster_tag(b"run"),
    }
    assert len(tags) == 4
    assert {len(tag) for tag in tags} == {8}
