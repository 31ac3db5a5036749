#!/usr/bin/env python3
"""verbatim beside llama.cpp's server with each of its ways to speculate: tokens per second, task by task.

    cargo build --release
    cmake -S llama.cpp -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-server
    python3 scripts/peer_speculation.py model.gguf --server build/bin/llama-server --threads 2

The prompts are verbatim's built-in ones, or those of a file; llama.cpp gets them as verbatim's token ids, and both
generate greedily up to the same number of tokens or the model's end of text. llama.cpp runs plainly and with each
--spec-type in the settings that its documentation gives for it (docs/speculative.md), with the cheapest sampling.

Engines take turns, round by round, and who begins changes with each round. Every turn is a new process, so that no
drafter remembers a prompt from the round before; llama.cpp's first answers one that is not counted. A rate is the
tokens of all of a task's prompts by the time spent on generating them, without the time for the prompts, as each
program measures it itself; the best round counts. llama.cpp's threads wait for each other many times in a token: as in
peer.py, only figures from a quiet machine mean anything, and a small model may be faster with one thread.

Speculation should not change the text. For each way of llama.cpp the outputs are counted that differ from its own plain
ones in any round.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from peer import QUIET, wait_for_quiet
from peer_prompts import VERBATIM, built_in, continued, from_file, output

PLAIN = "plain"
# The settings of llama.cpp's documentation, each with its name here.
WAYS = {
    PLAIN: [],
    "ngram-simple": ["--spec-type", "ngram-simple", "--spec-draft-n-max", "64"],
    "ngram-map-k": ["--spec-type", "ngram-map-k", "--spec-draft-n-max", "64"],
    "ngram-mod": ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "24"]
    + ["--spec-ngram-mod-n-min", "48", "--spec-ngram-mod-n-max", "64"],
    "draft-mtp": ["--spec-type", "draft-mtp"],
}
OURS = "verbatim"
START = 600
WARM_UP = 16


def fail(text):
    sys.exit(f"peer_speculation.py: {text}")


def typed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--server", required=True, help="llama.cpp's llama-server")
    parser.add_argument("--threads", type=int, default=2, help="of each engine [%(default)s]")
    parser.add_argument("--tokens", type=int, default=256, help="most tokens of an output [%(default)s]")
    parser.add_argument("--context", type=int, default=4096, help="most positions of prompt and output [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine [%(default)s]")
    parser.add_argument("--ways", help="llama.cpp's ways, comma separated [all]: " + ", ".join(list(WAYS)[1:]))
    parser.add_argument("--prompts", help="file of JSON objects, one a line, each with a prompt [the built-in ones]")
    parser.add_argument("--verbatim", default=VERBATIM, help="the program [target/release/verbatim]")
    parser.add_argument("--drafter", default="auto", help="of verbatim [%(default)s; if it has none, its fastest]")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine [%(default)s]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if min(args.threads, args.tokens, args.context, args.rounds) < 1:
        fail("threads, tokens, context and rounds are at least 1")
    named = [way for way in (args.ways or "").split(",") if way]
    if unknown := set(named) - set(WAYS):
        fail(f"llama.cpp's ways are {', '.join(list(WAYS)[1:])}, not {', '.join(sorted(unknown))}")
    args.ways = {way: options for way, options in WAYS.items() if not named or way in (PLAIN, *named)}
    return args


class Server:
    """llama.cpp's server while it runs one way."""

    def __init__(self, args, options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        command = [args.server, "-m", args.model, "--host", "127.0.0.1", "--port", port, "-c", args.context, "-np", 1]
        command += ["-t", args.threads, "-tb", args.threads, "--cache-ram", 0, *options]
        command = [str(word) for word in command]
        # Options of the caller's environment are not part of the comparison.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG")}
        try:
            self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        except OSError as error:
            fail(f"{args.server}: {error.strerror}")

    def __enter__(self):
        end = time.monotonic() + START
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.log.seek(0)
                tail = self.log.read()[-2000:].decode(errors="replace").strip()
                fail(f"llama.cpp's server ended with {self.process.returncode}: {tail}")
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        fail(f"llama.cpp's server does not answer after {START} s")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def generate(self, ids, tokens):
        """Its greedy answer to the token ids `ids`."""
        job = {"prompt": ids, "n_predict": tokens, "temperature": 0, "samplers": ["top_k"], "top_k": 1}
        job |= {"cache_prompt": False, "return_tokens": True}
        body = json.dumps(job).encode()
        request = urllib.request.Request(f"{self.address}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            told = json.load(answer)
        times = told["timings"]
        if told["truncated"] or times["prompt_n"] != len(ids):
            fail(f"llama.cpp evaluated {times['prompt_n']} of a prompt of {len(ids)} tokens (--context)")
        result = {"ids": told["tokens"], "tokens": times["predicted_n"], "seconds": times["predicted_ms"] / 1000}
        # Its time begins with the first token, which is the prompt's.
        result["steps"] = times["predicted_n"] - 1
        return result | {"drafted": times.get("draft_n", 0), "accepted": times.get("draft_n_accepted", 0)}


def run_llama(args, options, prompts):
    """One turn: the answers to all prompts."""
    # Another text than any prompt's: what a drafter learns of it does not help.
    other = [random.Random(0).choice(prompts[0]["prompt_ids"]) for _ in range(WARM_UP)]
    with Server(args, options) as server:
        server.generate(other, WARM_UP)
        return [server.generate(prompt["prompt_ids"], args.tokens) for prompt in prompts]


def run_verbatim(args):
    """One turn: `bench` with its own drafters, each prompt once."""
    command = [args.verbatim, "bench", "--json", "--repeat", 1, "-m", args.model, "--tokens", args.tokens]
    command += ["--threads", args.threads, "--ctx", args.context]
    if args.prompts:
        command += ["--prompts", args.prompts]
    return json.loads(output(command))


def measure(args, prompts):
    """What every engine gave in every round, and how busy others were before the worst turn."""
    turns = {way: lambda options=options: run_llama(args, options, prompts) for way, options in args.ways.items()}
    turns[OURS] = lambda: run_verbatim(args)
    results, others = {engine: [] for engine in turns}, []
    for turn in range(args.rounds):
        order = list(turns)
        order = order[turn % len(order) :] + order[: turn % len(order)]
        for engine in order if turn % 2 == 0 else reversed(order):
            others.append(wait_for_quiet(args.patience))
            results[engine].append(turns[engine]())
        print(f"round {turn + 1} of {args.rounds} done", file=sys.stderr)
    return results, max(others)


def llama_summary(way, rounds, plain, members):
    """One way of llama.cpp on the prompts numbered `members`; `plain`: the rounds without speculation."""
    sums = [{key: sum(answers[i][key] for i in members) for key in answers[0] if key != "ids"} for answers in rounds]
    rate = max(one["steps"] / max(1e-9, one["seconds"]) for one in sums)
    differ = sum(any(answers[i]["ids"] != plain[0][i]["ids"] for answers in rounds) for i in members)
    told = {"way": way, "tokens_per_second": rate, "differ": differ}
    return told | {key: sums[0][key] for key in ("tokens", "drafted", "accepted")}


def verbatim_summary(args, rounds, task):
    """verbatim's drafters on a task: the best rate of each."""
    found = {}
    for told in rounds:
        part = next(part for part in told["tasks"] if part["task"] == task) if task else {"drafters": told["total"]}
        for one in part["drafters"]:
            best = found.setdefault(one["drafter"], {"tokens_per_second": 0.0, "identical": True})
            best["tokens_per_second"] = max(best["tokens_per_second"], one["tokens_per_second"])
            best["identical"] &= one["identical"]
            best |= {key: one["metrics"][key] for key in ("emitted", "drafted", "accepted")}
    drafter = args.drafter
    if drafter not in found:
        drafter = max(found, key=lambda name: found[name]["tokens_per_second"])
    return {"drafter": drafter, "drafters": found} | found[drafter]


def summary(args, results, prompts):
    """One line of the table for each task and for all of them."""
    tasks = list(dict.fromkeys(prompt["task"] for prompt in prompts))
    plain, lines = results[PLAIN], []
    for task in [*tasks, None]:
        members = [i for i, prompt in enumerate(prompts) if task in (None, prompt["task"])]
        ways = [llama_summary(way, results[way], plain, members) for way in args.ways]
        best = max(ways[1:] or ways, key=lambda told: told["tokens_per_second"])
        ours = verbatim_summary(args, results[OURS], task)
        line = {"task": task or "total", "prompts": len(members), "llama.cpp": ways, "best": best["way"], OURS: ours}
        line["to_plain"] = ours["tokens_per_second"] / ways[0]["tokens_per_second"]
        line["to_best"] = ours["tokens_per_second"] / best["tokens_per_second"]
        same = [plain[0][i]["ids"] == prompts[i]["ids"] for i in members]
        lines.append(line | {"same_text": sum(same)})
    return lines


def show(args, lines):
    print(f"{args.model}: generated tokens per second, {args.threads} threads, best of {args.rounds} rounds")
    print()
    heads = ("task", "llama plain", "llama's best", "", "verbatim", "", "to plain", "to best")
    widths = (14, 11, 12, -14, 9, -10, 8, 8)

    def row(cells):
        return "  ".join(f"{c:<{-w}}" if w < 0 else f"{c:>{w}}" for c, w in zip(cells, widths)).rstrip()

    print(row(heads))
    for line in lines:
        ways = {told["way"]: told["tokens_per_second"] for told in line["llama.cpp"]}
        ours, best = line[OURS], line["best"]
        cells = [line["task"], f"{ways[PLAIN]:.1f}", f"{ways[best]:.1f}", best, f"{ours['tokens_per_second']:.1f}"]
        print(row([*cells, ours["drafter"], f"{line['to_plain']:.2f}", f"{line['to_best']:.2f}"]))
    total = lines[-1]
    print()
    print("llama.cpp     tokens/s  to plain  drafted  accepted  outputs unlike its plain ones")
    for told in total["llama.cpp"]:
        ratio = told["tokens_per_second"] / total["llama.cpp"][0]["tokens_per_second"]
        cells = f"{told['way']:12}  {told['tokens_per_second']:8.1f}  {ratio:8.2f}"
        cells += f"  {told['drafted']:7}  {told['accepted']:8}"
        print(f"{cells}  {told['differ']} of {total['prompts']}")
    print()
    print(f"llama.cpp's plain text is verbatim's in {total['same_text']} of {total['prompts']} prompts")


def main():
    args = typed()
    prompts = from_file(args.prompts) if args.prompts else built_in()
    options = ["-m", args.model, "--threads", args.threads, "--tokens", args.tokens, "--ctx", args.context]
    prompts = [continued(prompt, args.verbatim, options) for prompt in prompts]
    results, others = measure(args, prompts)
    lines = summary(args, results, prompts)
    if args.json:
        about = {"model": args.model, "threads": args.threads, "tokens": args.tokens, "rounds": args.rounds}
        about |= {"device": results[OURS][0]["device"], "others_busy": others}
        about["settings"] = {way: " ".join(options) for way, options in args.ways.items()}
        print(json.dumps(about | {"tasks": lines}))
    else:
        show(args, lines)
    if others >= QUIET:
        percent = f"{100 * others:.0f} %"
        print(f"other programs took up to {percent} of the processors: do not trust these ratios", file=sys.stderr)


if __name__ == "__main__":
    main()
