"""Counted thread blocks, kept on disk: the interpreter takes minutes for what does not change with clocks and launch costs.

Owns: what a count hangs on and where it is kept. Refuses to know: what is counted.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path

import machine

HERE = Path(__file__).resolve().parent


def digest(*things):
    """A short name for things."""
    return hashlib.sha256(repr(things).encode()).hexdigest()[:24]


class Counts:
    """Counts by machine code, arguments and place."""

    def __init__(self, path=None):
        """`path`: the file that keeps them; without one they are kept until the end of the program."""
        self.path, self.known, self.new = Path(path) if path else None, {}, 0
        # Counts of an interpreter that has changed since are no counts.
        self.rules = digest((HERE / "warp.py").read_text(encoding="utf-8"), machine.KINDS)
        if self.path and self.path.exists():
            self.known = json.loads(self.path.read_text(encoding="utf-8"))

    def get(self, code, key, run):
        """(instructions by kind, issue slots, clocks, unknown branches) of a block; `run` counts it."""
        name = digest(self.rules, machine.LATENCY, code.digest, key)
        if name not in self.known:
            count, slots, clocks, unknown = run()
            self.known[name] = [dict(count), slots, clocks, unknown]
            self.new += 1
            if self.new % 16 == 0:  # A run that is stopped has not been for nothing.
                self.save()
        count, *rest = self.known[name]
        return Counter(count), *rest

    def save(self):
        """Writes new ones down."""
        if self.path and self.new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.known))
