"""From a counted thread block to a launch's time on one die.

Owns: residency, the bound that binds, how the parts of the time go together. Refuses to know: models.
"""

import math
from dataclasses import dataclass, field

from machine import UNITS
from warp import Block


@dataclass
class Part:
    """Blocks of a launch that do the same: how many, the place of one of them, what its buffers hold ({argument: words})."""

    blocks: float
    at: tuple = (0, 0, 0)
    buffers: dict = field(default_factory=dict)


@dataclass
class Launch:
    """A launch: a kernel's code (or nothing, where only bytes count), what its blocks are given, the bytes it must move."""

    name: str
    code: object
    grid: tuple
    threads: tuple
    args: list
    bytes: float = 0
    shared: int = 0
    weights: float = 0
    parts: list = None

    def __post_init__(self):
        if self.parts is None:
            self.parts = [Part(math.prod(self.grid))]


@dataclass
class Cost:
    """Seconds of a launch without its launching, by what they go to, and what was counted."""

    issue: float
    wait: float
    move: float
    slots: float = 0
    bound: str = ""
    resident: int = 0
    unknown: int = 0
    hidden: float = 0

    @property
    def seconds(self):
        """The three add up, but for what the memory's time hides of the others or they of it."""
        return self.issue + self.wait + self.move - self.hidden * min(self.issue + self.wait, self.move)


def arguments(signature, values, null=()):
    """A launch's arguments after the kernel's parameters: pointers are addresses of their own."""
    out = []
    for k, (name, kind) in enumerate(signature):
        if kind == "ptr":
            out.append(("null",) if name in null else ("ptr", k))
        elif name not in values:
            raise SystemExit(f"a kernel takes {name}, and scripts/k80 does not say how much")
        else:
            out.append(values[name])
    return out


def counted(launch, part, counts):
    """Counts one block of the launch, once for equal blocks."""

    def run():
        buffers = {n: words.get for n, words in part.buffers.items()}
        return Block(launch.code, launch.threads, launch.args, part.at, launch.grid, buffers).run()

    key = launch.threads, launch.args, launch.grid, part.at, sorted(part.buffers.items())
    return counts.get(launch.code, key, run)


def occupied(count, slots, die):
    """Clocks a multiprocessor is busy with one block, and with what."""
    units = {name: count[name] * clocks for name, clocks in UNITS.items()}
    units["cores"] = (count["fp32"] + count["int"] + count["wide"]) * UNITS["fp32"]
    units["issue"] = slots / die.issue
    bound = max(units, key=units.get)
    return units[bound], bound


def residency(launch, die):
    """Blocks of the launch that a multiprocessor holds at once."""
    warps = -(-launch.threads[0] * launch.threads[1] // 32)
    registers = -(-max(launch.code.registers, 1) * 32 // 256) * 256 * warps
    shared = -(-(launch.shared + launch.code.shared) // 256) * 256
    room = [die.blocks, die.warps // warps, die.registers // registers, die.shared // shared if shared else die.blocks]
    return max(1, min(room))


def cost(launch, die, counts):
    """The launch's time."""
    move = launch.bytes / (die.bandwidth * die.bandwidth_share)
    if launch.code is None:
        return Cost(0, die.least, move, hidden=die.hidden)
    busy = slots = clocks = unknown = blocks = 0
    bounds = {}
    for part in launch.parts:
        count, issued, length, lost = counted(launch, part, counts)
        time, bound = occupied(count, issued, die)
        bounds[bound] = bounds.get(bound, 0) + time * part.blocks
        busy += time * part.blocks
        slots += issued * part.blocks
        clocks += length * part.blocks
        unknown += lost
        blocks += part.blocks
    held = residency(launch, die)
    # The busiest multiprocessor has a whole number of blocks.
    each = max(1.0, math.ceil(blocks / die.multiprocessors - 1e-9))
    issue = busy / blocks * each / die.clock
    wait = clocks / blocks * max(1.0, each / held) / die.clock
    return Cost(issue, wait, move, slots, max(bounds, key=bounds.get), held, unknown, die.hidden)
