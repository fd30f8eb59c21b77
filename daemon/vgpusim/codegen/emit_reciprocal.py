"""rcp.approx, div.approx and div.full of f32 with an H200's bits.

A card interpolates 1/x quadratically in each of 128 intervals of a binade. The tables and the columns that its squarer
leaves out were found from the results of an H200 (580.159.04) for every f32 in [1, 2), all of which these functions
give (`tests/gpu/oracle.py`, 2026-11-29). The method is Oberman and Siu's (2005)."""

from __future__ import annotations

from vgpusim.codegen.emit_float import flush
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import Form

# Of each interval: the value at its start in quarters of 2**-24, the negated slope, and the second coefficient, so that
# 1/x - 1/2 is the floor of their sum in units of 2**-24.
TABLE = (
    (33554432, 131068, 1013),
    (33034210, 129044, 989),
    (32521990, 127066, 966),
    (32017589, 125134, 945),
    (31520830, 123244, 923),
    (31031544, 121398, 902),
    (30549560, 119594, 883),
    (30074714, 117828, 863),
    (29606852, 116102, 845),
    (29145822, 114414, 827),
    (28691473, 112762, 809),
    (28243659, 111144, 791),
    (27802245, 109562, 774),
    (27367092, 108014, 758),
    (26938067, 106498, 742),
    (26515042, 105014, 727),
    (26097893, 103560, 711),
    (25686498, 102136, 696),
    (25280738, 100742, 682),
    (24880498, 99376, 669),
    (24485667, 98038, 656),
    (24096137, 96726, 642),
    (23711799, 95442, 631),
    (23332554, 94182, 618),
    (22958297, 92946, 605),
    (22588934, 91736, 594),
    (22224366, 90548, 582),
    (21864502, 89384, 572),
    (21509254, 88242, 561),
    (21158529, 87120, 549),
    (20812245, 86022, 540),
    (20470315, 84942, 529),
    (20132661, 83884, 519),
    (19799201, 82846, 510),
    (19469856, 81826, 501),
    (19144555, 80824, 490),
    (18823219, 79842, 482),
    (18505780, 78878, 474),
    (18192164, 77930, 465),
    (17882305, 77000, 457),
    (17576133, 76086, 449),
    (17273585, 75188, 441),
    (16974597, 74306, 433),
    (16679106, 73440, 426),
    (16387050, 72588, 418),
    (16098371, 71752, 412),
    (15813010, 70928, 403),
    (15530910, 70120, 397),
    (15252017, 69326, 390),
    (14976273, 68544, 383),
    (14703628, 67776, 377),
    (14434032, 67022, 371),
    (14167429, 66280, 366),
    (13903772, 65548, 358),
    (13643012, 64830, 353),
    (13385102, 64124, 348),
    (13129997, 63428, 341),
    (12877650, 62746, 337),
    (12628014, 62072, 331),
    (12381048, 61410, 326),
    (12136711, 60758, 320),
    (11894960, 60118, 316),
    (11655753, 59486, 310),
    (11419049, 58864, 305),
    (11184812, 58254, 302),
    (10953004, 57652, 297),
    (10723584, 57058, 291),
    (10496516, 56474, 287),
    (10271767, 55900, 283),
    (10049298, 55334, 279),
    (9829078, 54776, 274),
    (9611071, 54228, 271),
    (9395243, 53686, 266),
    (9181563, 53154, 263),
    (8969998, 52628, 258),
    (8760518, 52112, 256),
    (8553093, 51602, 251),
    (8347690, 51100, 248),
    (8144282, 50604, 243),
    (7942838, 50116, 240),
    (7743332, 49636, 237),
    (7545736, 49162, 233),
    (7350021, 48696, 231),
    (7156161, 48234, 226),
    (6964129, 47780, 223),
    (6773901, 47334, 222),
    (6585451, 46892, 218),
    (6398754, 46456, 214),
    (6213786, 46028, 212),
    (6030523, 45604, 208),
    (5848939, 45186, 205),
    (5669016, 44776, 204),
    (5490727, 44368, 199),
    (5314052, 43968, 197),
    (5138969, 43574, 196),
    (4965456, 43184, 193),
    (4793492, 42798, 189),
    (4623057, 42418, 186),
    (4454131, 42044, 184),
    (4286691, 41674, 182),
    (4120722, 41310, 180),
    (3956201, 40950, 178),
    (3793111, 40594, 175),
    (3631434, 40244, 173),
    (3471150, 39898, 171),
    (3312241, 39556, 169),
    (3154692, 39218, 166),
    (2998483, 38886, 165),
    (2843598, 38556, 161),
    (2690020, 38232, 160),
    (2537732, 37912, 159),
    (2386719, 37594, 155),
    (2236964, 37282, 154),
    (2088452, 36974, 153),
    (1941167, 36668, 150),
    (1795096, 36368, 149),
    (1650220, 36070, 147),
    (1506527, 35776, 145),
    (1364004, 35486, 143),
    (1222632, 35200, 143),
    (1082403, 34916, 140),
    (943300, 34636, 138),
    (805309, 34360, 137),
    (668417, 34086, 135),
    (532612, 33816, 133),
    (397881, 33550, 132),
    (264209, 33286, 131),
    (131587, 33026, 130),
)
_ROUNDING = 4046  # in units of 2**-40
_INFINITY, _NAN = 0x7F800000, 0x7FFFFFFF


def quotient(e: Emitter, form: Form, a: str, b: str, full: bool, ftz: bool) -> str:
    """a / b: the product with the reciprocal, after both were scaled. div.approx scales small divisors alone, so that
    one above 2**126 gives 0; subnormal divisors are zeros already where `ftz` is set."""
    kind = form.of("float")
    size, scale = e.fcall(form, "fabs", "float", b), form.fconst(1.0, "float")
    limits = [("olt", 2.0**-126, 2.0**24)] if not ftz else []
    limits += [("ogt", 2.0**126, 0.25)] if full else []
    for relation, limit, factor in limits:
        beyond = e.v(f"fcmp {relation} {kind} {size}, {form.fconst(limit, 'float')}")
        scale = e.v(f"select {form.int(1)} {beyond}, {kind} {form.fconst(factor, 'float')}, {kind} {scale}")
    if limits:
        a, b = (e.v(f"fmul {kind} {x}, {scale}") for x in (a, b))
        if ftz:
            a = e.to_fp(form, flush(e, form, e.from_fp(form, a, "f32")), "f32")
    return e.v(f"fmul {kind} {a}, {_table_value(e, form, b)}")


def reciprocal(e: Emitter, form: Form, x: str, ftz: bool) -> str:
    """1 / x. Without .ftz what the table has no result for is scaled first, and the result likewise."""
    if ftz:
        return _table_value(e, form, x)
    kind = form.of("float")
    size, scale = e.fcall(form, "fabs", "float", x), form.fconst(1.0, "float")
    for relation, limit, factor in (("olt", 2.0**-126, 2.0**24), ("oge", 2.0**126, 0.25)):
        beyond = e.v(f"fcmp {relation} {kind} {size}, {form.fconst(limit, 'float')}")
        scale = e.v(f"select {form.int(1)} {beyond}, {kind} {form.fconst(factor, 'float')}, {kind} {scale}")
    return e.v(f"fmul {kind} {_table_value(e, form, e.v(f'fmul {kind} {x}, {scale}'))}, {scale}")


def _table_value(e: Emitter, form: Form, x: str) -> str:
    """The table's reciprocal; subnormal operands and results are zeros."""
    name, kind = f"reciprocal.{form.suffix('f32')}", form.of("float")
    if name not in e.helpers:
        for index, label in enumerate(("start", "slope", "bend")):
            numbers = ", ".join(f"i32 {row[index]}" for row in TABLE)
            text = f"@reciprocal.{label} = private constant [{len(TABLE)} x i32] [{numbers}], align 64\n"
            e.helper(f"reciprocal.{label}", text)
        e.helper(name, _function(e, form, name))
    return e.v(f"call {kind} @{name}({kind} {x})")


def _function(e: Emitter, form: Form, name: str) -> str:
    f = Emitter(e.state, e.flush_by_mxcsr)
    kind, word, wide, flag = form.of("float"), form.int(32), form.int(64), form.int(1)

    def number(value: int) -> str:
        return form.const(value, 32)

    def op(operation: str, a: str, b: str | int) -> str:
        return f.v(f"{operation} {word} {a}, {number(b) if isinstance(b, int) else b}")

    bits = f.from_fp(form, "%x", "f32")
    exponent = op("and", op("lshr", bits, 23), 255)
    interval, rest = op("and", op("lshr", bits, 16), 127), op("and", bits, 0xFFFF)
    start, slope, bend = (_entry(f, form, label, interval) for label in ("start", "slope", "bend"))
    high, low = op("lshr", rest, 8), op("and", rest, 255)
    # The square of the rest in units of 2**17, without the partial products below that.
    square = op("lshr", op("sub", op("mul", high, high), op("and", high, 1)), 1)
    for bit in range(1, 8):
        chosen = op("sub", number(0), op("and", op("lshr", high, bit), 1))
        square = op("add", square, op("and", chosen, op("lshr", low, 8 - bit)))
    curved = f.v(f"zext {word} {op('shl', op('mul', bend, square), 1)} to {wide}")
    first, slope, rest = (f.v(f"zext {word} {text} to {wide}") for text in (start, slope, rest))
    total = f.v(f"add {wide} {f.v(f'shl {wide} {first}, {form.const(14, 64)}')}, {form.const(_ROUNDING, 64)}")
    total = f.v(f"add {wide} {total}, {curved}")
    total = f.v(f"sub {wide} {total}, {f.v(f'mul {wide} {slope}, {rest}')}")
    mantissa = f.v(f"trunc {wide} {f.v(f'lshr {wide} {total}, {form.const(16, 64)}')} to {word}")
    result = op("add", op("shl", op("sub", number(253), exponent), 23), mantissa)
    small = f.v(f"icmp slt {word} {result}, {number(0x800000)}")  # infinite operands, too
    result = f.v(f"select {flag} {small}, {word} {number(0)}, {word} {result}")
    zero = f.v(f"icmp eq {word} {exponent}, {number(0)}")
    result = f.v(f"select {flag} {zero}, {word} {number(_INFINITY)}, {word} {result}")
    result = op("or", result, op("and", bits, 1 << 31))
    nan = f.v(f"fcmp uno {kind} %x, %x")
    result = f.v(f"select {flag} {nan}, {word} {number(_NAN)}, {word} {result}")
    f.e(f"ret {kind} {f.to_fp(form, result, 'f32')}")
    e.declarations |= f.declarations
    body = "\n".join(f.lines)
    return f"define internal {kind} @{name}({kind} %x) noinline #0 {{\n{body}\n}}\n"


def _entry(f: Emitter, form: Form, label: str, index: str) -> str:
    """Entries of a table, one for each lane."""
    word, pointer = form.int(32), form.of("ptr")
    at = f.v(f"getelementptr i32, ptr @reciprocal.{label}, {word} {index}")
    if not form.vector:
        return f.v(f"load i32, ptr {at}, align 4")
    gather = f.call(
        word, f"llvm.masked.gather.{form.suffix('i32')}.v{form.n}p0", (pointer, at), ("i32", "4"),
        (form.int(1), form.const(1, 1)), (word, "poison"),
    )  # fmt: skip
    return f.v(gather)
