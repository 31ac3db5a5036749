#!/usr/bin/env python3
"""verbatim beside llama.cpp: what a pass of n rows costs, on one file, in one run.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install llama-cpp-python    # compiles llama.cpp: minutes
    target/release/verbatim bench --synthetic qwen3.5-35b-a3b:8 --write model.gguf --rows 1
    peer/bin/python scripts/peer.py model.gguf --threads 2 --rows 1,2,4,8,16,32

The engines take turns, round by round, each in a process of its own, and who begins changes with each round: a machine
that slows down for a while slows both down, and neither engine's memory is there while the other one runs. Both get the
same tokens (verbatim chooses them), the same number of tokens in the state, the same number of threads, and give the
logits of every row. Both go back to the same state before every pass; for llama.cpp that is a copy that is not timed.
Both follow the same rule: one pass of each length is not timed, then at least five are, for at least a tenth of a
second but not for more than one.

The machine must be quiet: llama.cpp's threads wait for each other many hundred times in a pass, and another program on
their processors makes it look ten times slower than it is. Where the system tells (Linux), every turn waits for other
programs to be quiet, and the result says how busy they were nevertheless.

A line of the table is a length: each engine's fastest pass of all rounds and the median over rounds of the rounds'
medians, the ratio verbatim : llama.cpp of both (below 1, verbatim is faster), and T(n)/T(1) of the fastest.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

FEWEST, ENOUGH, TOO_LONG = 5, 0.1, 1.0
CHUNK = 256
ENGINES = ("verbatim", "llama.cpp")
# A machine is quiet if other programs take less than this part of it.
QUIET = 0.1


def fail(text):
    sys.exit(f"peer.py: {text}")


def typed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--rows", default="1,2,4,8,16,32", help="lengths, comma separated [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="of each engine [%(default)s]")
    parser.add_argument("--context", type=int, default=128, help="tokens in the state before a pass [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine [%(default)s]")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine [%(default)s]")
    parser.add_argument("--verbatim", help="the program [target/release/verbatim]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    args.rows = sorted({1, *map(int, args.rows.split(","))})
    if args.rows[0] < 1 or min(args.threads, args.context, args.rounds) < 1:
        fail("rows, threads, context and rounds are at least 1")
    if not args.verbatim:
        args.verbatim = str(Path(__file__).resolve().parent.parent / "target" / "release" / "verbatim")
    if not Path(args.verbatim).exists():
        fail(f"{args.verbatim} does not exist; build it with `cargo build --release`, or name it with --verbatim")
    return args


def busy():
    """The part of the processors' time that other programs took in a moment without any engine; 0 where unknown."""

    def clock():
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = [int(field) for field in fields[:8]]
        return sum(ticks), ticks[3] + ticks[4]

    try:
        total, idle = clock()
        time.sleep(0.5)
        total_now, idle_now = clock()
    except (OSError, IndexError, ValueError):
        return 0.0
    return 1 - (idle_now - idle) / max(1, total_now - total)


def wait_for_quiet(patience):
    """Waits; returns how busy other programs were at the end."""
    end = time.monotonic() + patience
    while (others := busy()) >= QUIET and time.monotonic() < end:
        pass
    return others


def output(engine, command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        fail(f"{engine} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def run_verbatim(args):
    """One round of verbatim; also tells the tokens it used."""
    rows = ",".join(map(str, args.rows))
    command = [args.verbatim, "bench", "--passes", "--json", "--repeat", "1", "-m", args.model]
    command += ["--threads", str(args.threads), "--rows", rows, "--context", str(args.context)]
    return output("verbatim", command)


def run_llama(args, tokens):
    """One round of llama.cpp: this file again, as a child."""
    job = {"model": args.model, "threads": args.threads, "context": args.context, "rows": args.rows, "tokens": tokens}
    return output("llama.cpp", [sys.executable, __file__, "--child"], json.dumps(job))


class Llama:
    """A model in llama.cpp with the first tokens in its state."""

    def __init__(self, job):
        try:
            import llama_cpp
        except ImportError:
            fail("llama.cpp is not installed for this Python: pip install llama-cpp-python")
        self.lib = lib = llama_cpp
        self.quiet = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(job["model"].encode(), lib.llama_model_default_params())
        if not self.model:
            fail(f"llama.cpp cannot load {job['model']}")
        params = lib.llama_context_default_params()
        params.n_ctx = len(job["tokens"]) + CHUNK
        params.n_batch = params.n_ubatch = max(CHUNK, *job["rows"])
        params.n_threads = params.n_threads_batch = job["threads"]
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            fail("llama.cpp has no memory for a context")
        self.done = job["context"]
        for start in range(0, self.done, CHUNK):
            end = min(start + CHUNK, self.done)
            self.decode(self.batch(job["tokens"][start:end], start, last_only=True))
        size = lib.llama_state_seq_get_size(self.context, 0)
        self.state = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(self.context, self.state, size, 0) != size:
            fail("llama.cpp does not save its state")

    def batch(self, tokens, position, last_only=False):
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position + i, 1, 0
            batch.logits[i] = not last_only or i + 1 == len(tokens)
        return batch

    def decode(self, batch):
        if code := self.lib.llama_decode(self.context, batch):
            fail(f"llama_decode of {batch.n_tokens} rows failed with {code}")
        self.lib.llama_synchronize(self.context)

    def restore(self):
        self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.context), 0, -1, -1)
        if not self.lib.llama_state_seq_set_data(self.context, self.state, len(self.state), 0):
            fail("llama.cpp does not restore its state")

    def time(self, batch):
        """Seconds of each timed pass over `batch`."""
        times, begun = [], None
        while True:
            self.restore()
            clock = time.perf_counter()
            self.decode(batch)
            now = time.perf_counter()
            if begun is None:
                begun = now
                continue
            times.append(now - clock)
            spent = now - begun
            if (len(times) >= FEWEST and spent >= ENOUGH) or spent >= TOO_LONG:
                return times


def child():
    job = json.load(sys.stdin)
    llama = Llama(job)
    points = []
    for rows in job["rows"]:
        block = job["tokens"][llama.done : llama.done + rows]
        times = llama.time(llama.batch(block, llama.done))
        points.append({"rows": rows, "seconds": min(times), "median_seconds": statistics.median(times)})
    print(json.dumps({"points": points}))


def measure(args):
    """Points of every round by engine, verbatim's first answer, and how busy others were before the worst turn."""
    others = [wait_for_quiet(args.patience)]
    first = run_verbatim(args)
    tokens = first["tokens"]
    turns = {"verbatim": lambda: run_verbatim(args), "llama.cpp": lambda: run_llama(args, tokens)}
    results = {"verbatim": [first["points"]], "llama.cpp": []}
    order = list(ENGINES)
    for turn in range(args.rounds):
        for engine in order if turn % 2 == 0 else reversed(order):
            # The first round began with the run that told the tokens.
            if len(results[engine]) <= turn:
                others.append(wait_for_quiet(args.patience))
                results[engine].append(turns[engine]()["points"])
        print(f"round {turn + 1} of {args.rounds} done", file=sys.stderr)
    return results, first, max(others)


def summary(args, results):
    """One row of the table for each length."""
    table = []
    for i, rows in enumerate(args.rows):
        line = {"rows": rows}
        for engine in ENGINES:
            points = [points[i] for points in results[engine]]
            best = min(p["seconds"] for p in points)
            median = statistics.median(p["median_seconds"] for p in points)
            base = table[0][engine]["best_seconds"] if table else best
            line[engine] = {"best_seconds": best, "median_seconds": median, "relative": best / base}
        ours, theirs = (line[engine] for engine in ENGINES)
        line["ratio_best"] = ours["best_seconds"] / theirs["best_seconds"]
        line["ratio_median"] = ours["median_seconds"] / theirs["median_seconds"]
        table.append(line)
    return table


def show(args, about, table):
    print(f"{args.model}: passes of n rows after {args.context} tokens, logits for every row")
    print(f"{args.threads} threads, {args.rounds} rounds; verbatim: {about['device']}")
    print()
    print(f"{'':>4}  {'verbatim ms':^17}  {'llama.cpp ms':^17}  {'ratio':^13}  {'T(n)/T(1)':^19}")
    names = ("best", "median", "best", "median", "best", "median", "verbatim", "llama.cpp")
    widths = (8, 8, 8, 8, 6, 6, 9, 9)
    print("  ".join([f"{'rows':>4}"] + [f"{name:>{width}}" for name, width in zip(names, widths)]))
    for line in table:
        ours, theirs = (line[engine] for engine in ENGINES)
        ms = [1e3 * engine[key] for engine in (ours, theirs) for key in ("best_seconds", "median_seconds")]
        cells = [f"{value:8.2f}" for value in ms]
        cells += [f"{line['ratio_best']:6.2f}", f"{line['ratio_median']:6.2f}"]
        cells += [f"{ours['relative']:9.2f}", f"{theirs['relative']:9.2f}"]
        print("  ".join([f"{line['rows']:4d}"] + cells))


def main():
    if sys.argv[1:] == ["--child"]:
        return child()
    args = typed()
    results, first, others = measure(args)
    table = summary(args, results)
    if args.json:
        about = {"model": args.model, "threads": args.threads, "context": args.context, "rounds": args.rounds}
        about |= {"device": first["device"], "memory_bytes_per_second": first["memory_bytes_per_second"]}
        about["others_busy"] = others
        print(json.dumps(about | {"points": table}))
    else:
        show(args, first, table)
    if others >= QUIET:
        percent = f"{100 * others:.0f} %"
        print(f"other programs took up to {percent} of the processors: do not trust these ratios", file=sys.stderr)


if __name__ == "__main__":
    main()
