"""A link in virtual time."""

from __future__ import annotations

from tests.netlab.link_model import LinkCount, LinkModel, LinkSettings


def arrivals(link: LinkModel, until: float, step: float = 0.0001) -> list[tuple[float, bytes]]:
    """(when, packet) of all that arrives by then; looked for when the link says so."""
    found: list[tuple[float, bytes]] = []
    while (at := link.next_at()) is not None and at <= until:
        found += [(at, packet) for packet in link.due(at)]
    return found


def test_a_packet_takes_the_delay() -> None:
    link = LinkModel(LinkSettings(delay_s=0.05), seed=1)
    link.send(1.0, b"a")
    assert link.due(1.0499) == []
    assert link.next_at() == 1.05
    assert link.due(1.05) == [b"a"]
    assert link.next_at() is None


def test_the_rate_spaces_packets_and_a_full_queue_drops() -> None:
    link = LinkModel(LinkSettings(rate_bit_s=8000, queue_s=0.35), seed=1)  # 100 bytes take 0.1 s
    for number in range(6):
        link.send(0.0, bytes([number]) * 100)
    came = arrivals(link, 10.0)
    assert [round(at, 6) for at, _ in came] == [0.1, 0.2, 0.3, 0.4]
    assert [packet[0] for _, packet in came] == [0, 1, 2, 3]
    assert link.count == LinkCount(carried=4, overflowed=2)


def test_an_idle_link_does_not_save_up_rate() -> None:
    link = LinkModel(LinkSettings(rate_bit_s=8000), seed=1)
    link.send(5.0, bytes(100))
    link.send(5.0, bytes(100))
    assert [round(at, 6) for at, _ in arrivals(link, 10.0)] == [5.1, 5.2]


def test_jitter_lengthens_and_never_reorders() -> None:
    link = LinkModel(LinkSettings(delay_s=0.01, jitter_s=0.05), seed=3)
    for number in range(200):
        link.send(number * 0.001, number.to_bytes(2, "big"))
    came = arrivals(link, 10.0)
    assert [int.from_bytes(packet, "big") for _, packet in came] == list(range(200))
    # One that waits for the one before it takes as long as that one.
    took = [at - number * 0.001 for number, (at, _) in enumerate(came)]
    assert min(took) >= 0.01
    assert max(took) <= 0.06
    assert max(took) - min(took) > 0.01


def test_jitter_repeats_with_the_seed() -> None:
    def moments(seed: int) -> list[float]:
        link = LinkModel(LinkSettings(jitter_s=0.05), seed)
        for number in range(50):
            link.send(number * 0.1, bytes(1))
        return [at for at, _ in arrivals(link, 10.0)]

    assert moments(7) == moments(7)
    assert moments(7) != moments(8)


def test_loss_is_the_share_that_was_asked_for_and_repeats_with_the_seed() -> None:
    def lost(seed: int) -> list[int]:
        link = LinkModel(LinkSettings(loss=0.2), seed)
        for number in range(2000):
            link.send(0.0, number.to_bytes(2, "big"))
        return sorted(set(range(2000)) - {int.from_bytes(packet, "big") for packet in link.due(0.0)})

    assert lost(7) == lost(7)
    assert lost(7) != lost(8)
    assert 300 < len(lost(7)) < 500


def test_what_is_above_the_size_limit_does_not_pass_and_the_limit_may_change() -> None:
    link = LinkModel(LinkSettings(), seed=1)
    link.send(0.0, bytes(1400))
    link.settings = LinkSettings(mtu=1300)
    assert not link.send(0.0, bytes(1301)), "its sender would not be told"
    assert link.send(0.0, bytes(1300))
    link.settings = LinkSettings(mtu=1300, mtu_silent=True)
    assert link.send(0.0, bytes(1301))
    assert [len(packet) for packet in link.due(0.0)] == [1400, 1300]
    assert link.count.too_big == 2


def test_a_cut_takes_what_is_sent_meanwhile_and_not_what_is_under_way() -> None:
    link = LinkModel(LinkSettings(delay_s=1.0), seed=1)
    link.send(0.0, b"before")
    link.cut(5.0)
    link.send(4.9, b"meanwhile")
    link.send(5.0, b"after")
    assert link.due(10.0) == [b"before", b"after"]
    assert link.count == LinkCount(carried=2, cut=1)
