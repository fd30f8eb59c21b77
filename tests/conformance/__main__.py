"""`python -m tests.conformance`: run the checks and print where the sides differ."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from vgpud.bench.side import BenchError, Host, Side, native

from tests.conformance.outcome import Outcome, Verdict, compare
from tests.conformance.suite import GROUPS, PROGRAMS, Outcomes, Suite, build, recorded
from tests.shim.test_oracle import CONSEQUENCES

RECORDED = "H100, recorded"
NOTHING_COMPARED = 3
# A parameter buffer that is too short: a card launches with whatever lies behind the buffer, or refuses, by chance.
UNSTABLE = {"cuLaunchKernel(k,1,1,1,1,1,1,0,0,0,ex)": frozenset({"0", "701"})}
SIDES = ("native", "remoted", "simulated")


def accepted(name: str, base: Outcome) -> frozenset[str]:
    """Further right answers: those that follow from a call that is not supported (without a managed allocation there is
    nothing to free), and those that differ natively from run to run."""
    question = name.removeprefix("call ").rsplit(" #", 1)[0]
    return UNSTABLE.get(question, frozenset()) | frozenset(
        other
        for (asked, answer), other in CONSEQUENCES.items()
        if "".join(asked.split()) == question and base.values == (answer,)
    )


def report(columns: Mapping[str, Outcomes], *, everything: bool) -> tuple[str, bool]:
    """A table of the checks on which the columns differ (or of all), counts for each column, and whether none is wrong.

    Columns are compared with the first one; checks that did not run there, with the next column where they ran.
    """
    names = list(dict.fromkeys(name for outcomes in columns.values() for name in outcomes))
    counts: dict[str, Counter[Verdict]] = {column: Counter() for column in columns}
    lines, is_well = [], True
    for name in names:
        having = [column for column, outcomes in columns.items() if name in outcomes]
        able = [column for column in having if columns[column][name].missing is None]
        base = able[0] if able else having[0]
        expected = columns[base][name]
        verdicts = {}
        for column in having:
            if column == base:
                alone = Verdict.DIFFERENT if expected.error else Verdict.NOT_RUN if expected.missing else Verdict.SAME
                verdicts[column] = alone
            else:
                verdicts[column] = compare(expected, columns[column][name], accepted=accepted(name, expected))
            counts[column][verdicts[column]] += 1
        is_well &= Verdict.DIFFERENT not in verdicts.values()
        if everything or set(verdicts.values()) != {Verdict.SAME}:
            cells = [str(columns[column][name]) if column in having else "" for column in columns]
            worst = next((v for v in reversed(Verdict) if v in verdicts.values()), Verdict.SAME)
            lines.append(f"| {name} | {' | '.join(cells)} | {worst.value} |")
    head = [f"| check | {' | '.join(columns)} | verdict |", "|---" * (len(columns) + 2) + "|"]
    summary = [
        f"{column}: " + ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict if count[verdict])
        for column, count in counts.items()
    ]
    return "\n".join([*(head if lines else []), *lines, "", *summary]), is_well


def was_compared(columns: Mapping[str, Outcomes]) -> bool:
    """Whether at least one check ran on two sides, or on the only side."""
    names = {name for outcomes in columns.values() for name in outcomes}
    ran = [sum(name in o and o[name].missing is None for o in columns.values()) for name in names]
    return max(ran, default=0) >= min(2, len(columns))


@dataclass(frozen=True)
class Column:
    """What runs all checks: a side, and the channel of a remoted one."""

    side: str
    channel: str
    name: str

    @property
    def shares_memory(self) -> bool:
        return self.channel == "shm"


def columns_of(sides: list[str], channels: list[str]) -> list[Column]:
    """A column for each channel of each side; the native side, which has none, polls memory if another column does."""
    found = []
    for side in sides:
        for channel in ["shm" if "shm" in channels else channels[0]] if side == "native" else channels:
            named = side == "native" or len(channels) == 1
            found.append(Column(side, channel, side if named else f"{side}, {channel}"))
    return found


def place(column: Column, folder: Path, options: argparse.Namespace) -> AbstractContextManager[Side]:
    """Where the programs of a column run; starts its vgpud. Raises BenchError."""
    if column.side == "native":
        return nullcontext(native(options.libcuda))
    backend = "simulator" if column.side == "simulated" else "cuda"
    folder /= f"{column.side}-{column.channel}"
    return serving(Host(column.channel, folder, backend, options.gpus, options.libcuda))


@contextmanager
def serving(host: Host) -> Iterator[Side]:
    with host:
        yield host.side


def run_group(
    suite: Suite, side: Side, column: Column, group: str, begin: float, options: argparse.Namespace, late: list[str]
) -> Outcomes:
    """Run one group of checks for one column, and say how long it took; out of time, note it in `late`."""
    name = column.name
    start = time.monotonic()
    if start - begin > options.limit_s:
        print(f"{name}: {group}: not begun after {options.limit_s:.0f} s", file=sys.stderr, flush=True)
        late.append(group)
        return {}
    found = suite.run(
        side,
        [group],
        python=options.python,
        simulated=column.side == "simulated",
        shared_memory=column.shares_memory,
    )
    print(f"{name}: {group}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return found


def gathered(running: Mapping[tuple[Column, str], Future[Outcomes]]) -> dict[str, Outcomes]:
    """The outcomes of each column, when all have been determined; after an interruption those that were by then."""
    done: Collection[Future[Outcomes]] = running.values()
    try:
        wait(done)
    except KeyboardInterrupt:
        done = [future for future in done if future.done()]
        late = [f"{column.name}: {group}" for (column, group), future in running.items() if future not in done]
        print(f"interrupted: without {', '.join(late)}", file=sys.stderr, flush=True)
        for future in running.values():
            future.cancel()
    columns: dict[str, Outcomes] = {}
    for (column, _), future in running.items():
        columns.setdefault(column.name, {}).update(future.result() if future in done else {})
    return columns


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 no side differs, 1 a side differs, 2 a side is not available, 3 nothing was compared."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    for side in SIDES:
        parser.add_argument(f"--{side}", action="store_true", help=f"run the {side} column (default: all three)")
    parser.add_argument("--libcuda", default="libcuda.so.1", help="the machine's own driver")
    parser.add_argument(
        "--channel",
        nargs="+",
        default=["shm"],
        choices=("shm", "unix", "tcp"),
        help="of the remoted columns (shm); several: a column for each",
    )
    parser.add_argument("--gpus", default="h100", help="the simulated devices")
    parser.add_argument("--group", action="append", choices=GROUPS, help="some of the checks only")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="some of the programs only")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the libraries")
    parser.add_argument("--no-recorded", action="store_true", help=f"leave the column '{RECORDED}' out")
    parser.add_argument("--jobs", type=int, default=1, help="groups of checks that run at once, of any side (1)")
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no further group after so many seconds")
    parser.add_argument("--all", action="store_true", help="also what is the same everywhere")
    begin = time.monotonic()
    options = parser.parse_args(arguments)
    sides = [side for side in SIDES if getattr(options, side)] or list(SIDES)
    groups = options.group or list(GROUPS)
    wanted = columns_of(sides, options.channel)
    columns: dict[str, Outcomes] = {}
    if "calls" in groups and not options.no_recorded:
        columns[RECORDED] = recorded()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-conformance-")))
        suite = build(groups, folder, options.program or PROGRAMS)
        try:
            places = {each: stack.enter_context(place(each, folder, options)) for each in wanted}
        except BenchError as error:
            print(f"conformance: {error}", file=sys.stderr)
            return 2
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        # A group's columns run one after the other, so that they can be compared if time runs out.
        work = [(column, group) for group in groups for column in wanted]
        late: list[str] = []
        running = {each: pool.submit(run_group, suite, places[each[0]], *each, begin, options, late) for each in work}
        columns |= gathered(running)
    text, is_well = report(columns, everything=options.all)
    print(text)
    if not is_well or late:
        return 1
    return 0 if was_compared(columns) else NOTHING_COMPARED


if __name__ == "__main__":
    sys.exit(main())
