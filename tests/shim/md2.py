"""MD2 (RFC 1319) and HMAC (RFC 2104), to compare with the shim's. The permutation is made from the digits of pi."""


def _pi_digits(count: int) -> list[int]:
    """The first decimal digits of pi after 3, by Machin's formula."""
    unity = 10 ** (count + 20)

    def arctan_inverse(x: int) -> int:
        total = term = unity // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return [int(c) for c in str(pi)[:count]]


def _permutation() -> list[int]:
    """A shuffle of 0..255 whose random numbers are digits of pi, as the algorithm's authors published it."""
    digits = iter(_pi_digits(2000))

    def random_below(n: int) -> int:
        span, value = 10, next(digits)
        if n > 10:
            span, value = 100, value * 10 + next(digits)
        if n > 100:
            span, value = 1000, value * 10 + next(digits)
        if value < n * (span // n):
            return value % n
        return random_below(n)

    table = list(range(256))
    for i in range(2, 257):
        j = random_below(i)
        table[j], table[i - 1] = table[i - 1], table[j]
    return table


TABLE = _permutation()


def md2(message: bytes) -> bytes:
    """The 16-byte digest."""
    padding = 16 - len(message) % 16
    message += bytes([padding]) * padding
    checksum, last = [0] * 16, 0
    for start in range(0, len(message), 16):
        for i in range(16):
            last = checksum[i] = checksum[i] ^ TABLE[message[start + i] ^ last]
    message += bytes(checksum)
    state = [0] * 48
    for start in range(0, len(message), 16):
        block = list(message[start : start + 16])
        state[16:32] = block
        state[32:48] = [a ^ b for a, b in zip(block, state[:16], strict=True)]
        t = 0
        for number in range(18):
            for i in range(48):
                state[i] ^= TABLE[t]
                t = state[i]
            t = (t + number) % 256
    return bytes(state[:16])


def hmac_md2(key: bytes, message: bytes) -> bytes:
    """HMAC with MD2's 16-byte block."""
    inner = md2(bytes(b ^ 0x36 for b in key) + message)
    return md2(bytes(b ^ 0x5C for b in key) + inner)
