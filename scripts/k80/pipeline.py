"""Two dies: a pass's time from its launches.

Owns: what runs where, what overlaps. Refuses to know: kernels.
"""

from launch import cost
from model import layer_bytes

# Ways to cut a pass, and rows of a micro-block at least (src/backend/cuda/cut.rs).
WAYS, FEWEST = (1, 2, 4, 8), 4
# The text of `balanced` in src/backend/cuda/split.rs that `balance` follows.
BALANCED = "f85422ab"


class Pass:
    """Times of an engine's passes on two dies."""

    def __init__(self, engine, shape, die, counts, host):
        """`host`: seconds that the host takes by itself in a pass of n rows."""
        self.engine, self.shape, self.die, self.counts, self.host = engine, shape, die, counts, host
        self.times = {}

    def seconds(self, launches):
        """Launches one after another on one die."""
        return sum(cost(launch, self.die, self.counts).seconds + self.die.launch for launch in launches)

    def layer(self, layer, n):
        if (layer, n) not in self.times:
            self.times[layer, n] = self.seconds(self.engine.layer(layer, n))
        return self.times[layer, n]

    def head(self, n):
        if ("head", n) not in self.times:
            self.times["head", n] = self.seconds(self.engine.head(n))
        return self.times["head", n]

    def launches(self, n):
        """Launches of a pass."""
        layers = sum(len(list(self.engine.layer(i, n))) for i in range(self.shape.layers))
        return layers + len(list(self.engine.boundary(n))) + len(list(self.engine.head(n)))

    def rollback(self, keep):
        """Seconds that a pass of which only `keep` rows stay adds on the slower die, half of the layers on each."""
        return sum(self.seconds(self.engine.rollback(i, keep)) for i in range(self.shape.layers)) / 2

    def hand_over(self, n):
        """Rows of the residual stream from die to die."""
        last = self.seconds(self.engine.boundary(n))
        return last + self.die.link_start + 4 * self.shape.width * n / self.die.link

    def sequence(self, n, head):
        """Die after die, `head` rows through the output matrix."""
        layers = sum(self.layer(i, n) for i in range(self.shape.layers))
        return layers + self.hand_over(n) + self.head(head) + self.host(n)

    def parts(self, split, n):
        """Seconds of n rows on either die, without the head."""
        return sum(self.layer(i, n) for i in range(split)), sum(self.layer(i, n) for i in range(split, self.shape.layers))

    def cut(self, n, split, head, micro):
        """Seconds of n rows in `micro` micro-blocks: the first die works on one while the second works on the one before. The
        head follows once, on the second die."""
        first = second = 0.0
        for k in range(micro):
            rows = n * (k + 1) // micro - n * k // micro
            a, b = self.parts(split, rows)
            first += a
            second = max(second, first + self.hand_over(rows)) + b
        return second + self.head(head) + self.host(n)

    def best(self, n, split, head):
        """(seconds, micro-blocks) of the fastest cut."""
        return min((self.cut(n, split, head, m), m) for m in WAYS if m == 1 or n // m >= FEWEST)


def balance(shape):
    """Layers of the first die: half of the bytes that a row reads of the layers (src/backend/cuda/split.rs)."""
    reads = [layer_bytes(shape, layer)[1] for layer in range(shape.layers)]
    share, read = sum(reads) / 2, 0
    for layer, bytes in enumerate(reads):
        if read + bytes / 2 > share:
            return layer
        read += bytes
    return shape.layers - 1
