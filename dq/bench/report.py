"""The figures as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dq.bench.figures import (
    Callbacks,
    Comparison,
    Cpu,
    Idle,
    Lateness,
    Memory,
    Pushes,
    Spread,
    Waiting,
)
from dq.bench.machine import Machine
from dq.bench.run import Result

_LABEL = 34
_CELL = 13


def report_of(result: Result) -> str:
    """All lines; CPU is in ms for 1,000 jobs."""
    lines = [machine_line(result.machine)]
    if result.pushes is not None:
        lines += ["", *_pushes(result.pushes)]
    if result.callbacks is not None:
        lines += ["", *_callbacks(result.callbacks)]
    if result.lateness:
        lines += ["", *_lateness(result.lateness)]
    if result.memory is not None:
        lines += ["", _memory(result.memory)]
    if result.idle is not None:
        lines += ["", *_idle(result.idle)]
    if result.waiting:
        lines += ["", *_waiting(result.waiting)]
    lines += ["", *(f"WRONG: {text}" for text in result.wrong)]
    if not result.wrong:
        lines.append("nothing lost, nothing early")
    return "\n".join(lines)


def machine_line(machine: Machine) -> str:
    """The hardware, and what runs on it, in a line."""
    cores = "core" if machine.cores == 1 else "cores"
    return (
        f"dq {machine.dq} on {machine.cpu}, {machine.cores} {cores}, "
        f"{machine.memory_bytes / 2**30:.1f} GB, {machine.disk}, {machine.kernel}, "
        f"Python {machine.python}, Valkey {machine.valkey}; {machine.date}, load {machine.load:g}"
    )


def _row(label: str, *cells: str) -> str:
    return f"{label:{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _pushes(pushes: Pushes) -> Iterator[str]:
    yield (
        _row(f"pushes, {pushes.jobs:,} a round", "dq", "bare web", "ratio")
        + "   (lowest to highest)"
    )
    yield from _comparison(f"single, {pushes.connections} connections", pushes.single)
    yield from _comparison(f"single, {pushes.many_connections} connections", pushes.single_of_many)
    yield from _comparison("batches of 100", pushes.batch)


def _callbacks(callbacks: Callbacks) -> Iterator[str]:
    yield _row("callbacks", "dq", "bare client", "ratio") + "   (lowest to highest)"
    yield from _comparison(f"{callbacks.jobs:,} due at once", callbacks.versus)
    yield ""
    yield "CPU of a job's whole life, ms for 1,000: push, callback, history in SQL"
    singles = callbacks.life_cpu_ms, callbacks.life_cpu_all_ms
    batches = callbacks.life_of_batches_cpu_ms, callbacks.life_of_batches_cpu_all_ms
    yield from _by_kind({"  single pushes": singles, "  batches of 100": batches}, 1)


def _comparison(label: str, versus: Comparison) -> Iterator[str]:
    dq, bare = versus.dq, versus.bare
    rates = (f"{dq.per_s:,.0f}/s", f"{bare.per_s:,.0f}/s")
    yield _row(f"  {label}", *rates, *_ratio(versus.rate_ratio))
    yield _row(
        "    CPU for 1,000",
        f"{dq.cpu_ms:.1f} ms",
        f"{bare.cpu_ms:.1f} ms",
        *_ratio(versus.cpu_ratio),
    )


def _ratio(ratio: Spread) -> tuple[str, str]:
    return f"{ratio.median:.2f}", f"   ({ratio.lowest:.2f} to {ratio.highest:.2f})"


def _lateness(rates: Sequence[Lateness]) -> Iterator[str]:
    yield _row("lateness", *(f"{one.rate:,}/s" for one in rates))
    yield _row("  p50", *(f"{one.p50_ms:.1f} ms" for one in rates))
    yield _row("  p99", *(f"{one.p99_ms:.1f} ms" for one in rates))
    yield _row("  max", *(f"{one.max_ms:.1f} ms" for one in rates))
    yield _row("  jobs", *(f"{one.jobs:,}" for one in rates))
    yield _row("  pushed", *(f"{one.pushed_per_s:,.0f}/s" for one in rates))
    yield _row("  early", *(f"{one.early:,}" for one in rates))


def _memory(memory: Memory) -> str:
    label = f"memory, {memory.jobs:,} waiting jobs"
    return _row(label, f"{memory.bytes_a_job:.0f} bytes") + f" a job, body {memory.body_bytes}"


def _idle(idle: Idle) -> Iterator[str]:
    yield f"idle, % of a core over {idle.seconds:.0f} s"
    yield from _by_kind({"": (idle.percent, idle.percent_all)}, 2)


def _by_kind(rows: Mapping[str, tuple[Cpu, float]], digits: int) -> Iterator[str]:
    """A column for each kind of process, and one for all of them together."""
    kinds = next(iter(rows.values()))[0]
    lines = [["", *kinds, "all"]]
    for label, (cpu, total) in rows.items():
        lines.append([label, *(f"{cpu[kind]:.{digits}f}" for kind in kinds), f"{total:.{digits}f}"])
    label_width, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    for label, *words in lines:
        cells = (f"{word:>{width + 2}}" for word, width in zip(words, widths, strict=True))
        yield f"{label:<{label_width}}" + "".join(cells)


def _waiting(levels: Sequence[Waiting]) -> Iterator[str]:
    yield _row("waiting jobs", *(f"{one.waiting:,}" for one in levels))
    yield "  CPU for 1,000 others, ms"
    yield _row("    push: dq-server", *(f"{one.server_push_ms:.1f}" for one in levels))
    yield _row("    push: Valkey", *(f"{one.valkey_push_ms:.1f}" for one in levels))
    delivery = (f"{one.valkey_delivery_ms:.1f}" for one in levels)
    yield _row("    forward, lease, ack: Valkey", *delivery)
    yield _row("  jobs called, timer killed", *(f"{one.hand_over_s:.1f} s" for one in levels))
    yield _row("  start", *(f"{one.start_s:.1f} s" for one in levels))
