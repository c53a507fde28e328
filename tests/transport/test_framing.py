from __future__ import annotations

import random

import pytest

from ppsmoke.transport.framing import PIECE_BYTES, FrameCutter, FrameError, frame_pieces


def wire(*frames: bytes) -> bytes:
    return b"".join(piece for frame in frames for piece in frame_pieces(frame))


def cut_all(cutter: FrameCutter) -> list[bytes]:
    frames = []
    while (frame := cutter.take()) is not None:
        frames.append(frame)
    return frames


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 10_000])
def test_frames_come_out_whole_however_the_bytes_arrive(step: int) -> None:
    frames = [b"", b"a", b"bc" * 40, b"", bytes(range(256)) * 3]
    data = wire(*frames)
    cutter, got = FrameCutter(1000), []
    for start in range(0, len(data), step):
        cutter.feed(data[start : start + step])
        got += cut_all(cutter)
    assert got == frames
    assert cutter.pending == 0
    assert cutter.missing == 0


def test_random_frames_in_random_pieces() -> None:
    rng = random.Random(7)
    for _ in range(200):
        frames = [rng.randbytes(rng.choice([0, 1, 3, 4, 5, 100, 3000])) for _ in range(rng.randrange(1, 12))]
        data, cutter, got = wire(*frames), FrameCutter(3000), []
        while data:
            size = rng.randrange(1, 900)
            cutter.feed(data[:size])
            data = data[size:]
            if rng.random() < 0.5:
                got += cut_all(cutter)
        assert got + cut_all(cutter) == frames


def test_what_is_missing_is_known_as_soon_as_the_length_is() -> None:
    cutter = FrameCutter(1 << 20)
    data = wire(b"x" * 500_000)
    cutter.feed(data[:3])
    assert cutter.take() is None
    assert cutter.missing == 0
    cutter.feed(data[3:104])
    assert cutter.take() is None
    assert cutter.missing == 499_900
    assert cutter.pending == 104


def test_a_length_over_the_limit_is_an_error_at_once() -> None:
    for hostile in (1001, 0xFFFFFFFF):
        cutter = FrameCutter(1000)
        cutter.feed(hostile.to_bytes(4, "big"))
        with pytest.raises(FrameError, match=f"a frame of {hostile} bytes was announced where at most 1000"):
            cutter.take()


def test_the_limit_may_change_between_frames() -> None:
    cutter = FrameCutter(10)
    cutter.feed(wire(b"small", b"larger than ten"))
    assert cutter.take() == b"small"
    cutter.max_frame = 100
    assert cutter.take() == b"larger than ten"


def test_a_small_frame_is_one_write_and_a_big_one_pieces_of_a_mebibyte() -> None:
    assert frame_pieces(b"head", b"payload") == [b"\x00\x00\x00\x0bheadpayload"]
    payload = bytes(2 * PIECE_BYTES + 12_345)
    pieces = frame_pieces(b"head", payload)
    assert [len(piece) for piece in pieces] == [PIECE_BYTES, PIECE_BYTES, 12_345 + 8]
    assert b"".join(pieces) == (len(payload) + 4).to_bytes(4, "big") + b"head" + payload
    exact = PIECE_BYTES - 8
    assert len(frame_pieces(b"head", bytes(exact))) == 1
    assert [len(piece) for piece in frame_pieces(b"head", bytes(exact + 1))] == [PIECE_BYTES, 1]
