"""Copies of pageable memory without a round trip, through staging slots (vgs_staging.c); with and without spinning."""


def test_copies_of_every_size(simulate_spinning) -> None:
    simulate_spinning(
        """
        rng = random.Random(3)
        s = stream()
        sizes = [1, 4, 4095, 61440, 61441, 65536, 65537, 524288, 524289, 4194304, 8388608, 9000001]
        big = alloc(max(sizes) + 64)
        for n in sizes:
            data = rng.randbytes(n)
            for on in (s, None):
                for at in (0, 3):
                    p = c_uint64(big.value + at)
                    source = create_string_buffer(data, n)
                    put(p, source.raw if n < 1000 else data, on)
                    assert get(p, n, on) == data, (n, at)
                    put(p, bytes(n), on)
                    ok(cuda.cuCtxSynchronize())  # the two streams do not wait for each other
        """
    )


def test_the_source_may_be_overwritten_at_once(simulate_spinning) -> None:
    simulate_spinning(
        """
        s, n = stream(), 20 << 20
        p, source = alloc(n), create_string_buffer(20 << 20)
        go = threading.Event()
        for i in range(1, 4):
            ctypes.memset(source, i, n)
            ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(n), s))
            ctypes.memset(source, 99, n)
            assert get(p, n, s) == bytes([i]) * n
        """
    )


def test_threads_copy_at_the_same_time(simulate_spinning) -> None:
    simulate_spinning(
        """
        failed = []
        threading.excepthook = lambda args: failed.append(args)
        def work(i):
            ok(cuda.cuCtxSetCurrent(ctx))
            s, n = stream(), 3_000_000 + i
            p = alloc(n)
            for round in range(3):
                data = bytes([i + 16 * round]) * n
                put(p, data, s)
                assert get(p, n, s) == data
        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failed, failed
        """
    )


def test_a_copy_behind_a_held_stream_waits_and_delays_nobody(simulate_spinning) -> None:
    simulate_spinning(
        """
        s, t, n = stream(), stream(), 12 << 20
        p, q = alloc(n), alloc(4)
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        ok(cuda.cuLaunchHostFunc(s, wait, None))
        back = []
        def fetch():
            ok(cuda.cuCtxSetCurrent(ctx))
            back.append(get(p, n, s))
        reader = threading.Thread(target=fetch)
        reader.start()
        for i in range(50):
            fill(q, i, 1, t)
            assert get(q, 4, t) == i.to_bytes(4, "little")
        assert not back
        go.set()
        reader.join()
        assert len(back[0]) == n
        """
    )


def test_a_copy_is_not_held_up_by_a_small_one_of_a_blocked_stream(simulate_spinning) -> None:
    """The blocked stream may wait for what this thread does after the copy."""
    simulate_spinning(
        """
        s, t = stream(), stream()
        p, q = alloc(32 << 10), alloc(1 << 20)
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        ok(cuda.cuLaunchHostFunc(s, wait, None))
        for _ in range(20): put(p, bytes(32 << 10), s)
        for i in range(3):
            put(q, bytes([i]) * (1 << 20), t)
            assert get(q, 1 << 20, t) == bytes([i]) * (1 << 20)
        go.set()
        ok(cuda.cuCtxSynchronize())
        """
    )


def test_short_copies_behind_a_held_stream_return_at_once(simulate_spinning) -> None:
    """More than there are places for in the memory that they pass through, and their source is overwritten."""
    simulate_spinning(
        """
        import threading
        s, go = stream(), threading.Event()
        hold = HOST(lambda _: go.wait() and None)
        sizes = [(16 << 10) + 1, 20_000, 64 << 10]
        places = [alloc(64 << 10) for _ in range(60)]
        put(places[0], bytes(60_000), s)
        ok(cuda.cuLaunchHostFunc(s, hold, None))
        for i, place in enumerate(places):
            data = bytearray([i + 1]) * sizes[i % 3]
            put(place, bytes(data), s)
        assert cuda.cuStreamQuery(s) == NOT_READY
        go.set()
        ok(cuda.cuStreamSynchronize(s))
        for i, place in enumerate(places):
            assert get(place, sizes[i % 3]) == bytes([i + 1]) * sizes[i % 3]
        """
    )
