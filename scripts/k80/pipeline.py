"""Two dies: a pass's time from its launches.

Owns: what runs where, what overlaps. Refuses to know: kernels.
"""

from launch import cost


class Pass:
    """Times of an engine's passes on two dies."""

    def __init__(self, engine, shape, die, host):
        """`host`: seconds that the host takes by itself in a pass of n rows."""
        self.engine, self.shape, self.die, self.host = engine, shape, die, host
        self.times = {}

    def seconds(self, launches):
        """Launches one after another on one die."""
        return sum(cost(launch, self.die).seconds + self.die.launch for launch in launches)

    def layer(self, layer, n):
        key = layer, n
        if key not in self.times:
            self.times[key] = self.seconds(self.engine.layer(layer, n))
        return self.times[key]

    def head(self, n):
        if ("head", n) not in self.times:
            self.times["head", n] = self.seconds(self.engine.head(n))
        return self.times["head", n]

    def launches(self, n):
        """Launches of a pass."""
        return sum(len(list(self.engine.layer(i, n))) for i in range(self.shape.layers)) + len(list(self.engine.head(n)))

    def hand_over(self, n):
        """Rows of the residual stream from die to die."""
        return self.die.link_start + 4 * self.shape.width * n / self.die.link

    def sequence(self, n, head):
        """Die after die, `head` rows through the output matrix."""
        layers = sum(self.layer(i, n) for i in range(self.shape.layers))
        return layers + self.hand_over(n) + self.head(head) + self.host(n)

    def parts(self, split, n, head):
        """Seconds on either die."""
        first = sum(self.layer(i, n) for i in range(split))
        second = sum(self.layer(i, n) for i in range(split, self.shape.layers))
        return first, second + (self.head(head) if head else 0)

    def balance(self, n):
        """The split at which both dies take as long."""
        return min(range(1, self.shape.layers), key=lambda k: max(self.parts(k, n, n)))


def best(run, n, split, head):
    """Seconds of a pass of n rows and the number of micro-blocks that makes it shortest. `head`: rows whose logits are
    wanted, all or the last."""
    times = []
    for micro in (1, 2, 4, 8):
        if n % micro:
            continue
        rows = n // micro
        clock_a = clock_b = 0.0
        for k in range(micro):
            wanted = rows if head == n else head if k + 1 == micro else 0
            a, b = run.parts(split, rows, wanted)
            clock_a += a
            clock_b = max(clock_b, clock_a + run.hand_over(rows)) + b
        times.append((clock_b + run.host(n), micro))
    return min(times)
