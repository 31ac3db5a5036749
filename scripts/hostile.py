#!/usr/bin/env python3
"""Texts on which drafting cannot gain: how much `auto` loses to plain decoding.

    cargo build --release
    python3 scripts/hostile.py [MODEL.gguf] --runs 10

Three texts: random tokens as the prompt, a text drawn at a high temperature, and a story without repetition. Plain
decoding and `auto` take turns, each in a process of its own, and who begins changes with each turn. Both give the same
tokens; this is checked. The figure is the ratio auto : plain of generated tokens per second, 1 where nothing is lost: of
the sums over all turns, and of each pair of turns.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

STORY = (
    "Tell me a long story about a lighthouse keeper who finds a letter in a bottle, "
    "with many different people, places and turns, and never say a thing twice."
)


def fail(text):
    sys.exit(f"hostile.py: {text}")


def typed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="GGUF file [the embedded model]")
    parser.add_argument("--runs", type=int, default=10, help="turns of each [%(default)s]")
    parser.add_argument("--tokens", type=int, default=400, help="generated in each turn [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--vocabulary", type=int, default=4000, help="random tokens are below this [%(default)s]")
    parser.add_argument("--draft", default="auto", help="who drafts against plain decoding [%(default)s]")
    parser.add_argument("--verbatim", help="the program [target/release/verbatim]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if not args.verbatim:
        args.verbatim = str(Path(__file__).resolve().parent.parent / "target" / "release" / "verbatim")
    if not Path(args.verbatim).exists():
        fail(f"{args.verbatim} is missing: build it, or name it with --verbatim")
    return args


def texts(args):
    """Names of the texts, and the flags that make them."""
    numbers = random.Random(7)
    tokens = ",".join(str(numbers.randrange(args.vocabulary)) for _ in range(200))
    drawn = ["--prompt-ids", tokens[: tokens.index(",", 40)], "--temperature", "1.5", "--seed", "5"]
    return {
        "random tokens": ["--prompt-ids", tokens],
        "high temperature": drawn,
        "free story": [STORY, "--temperature", "1", "--seed", "3"] if not args.model else drawn[:3] + ["1", "--seed", "3"],
    }


def run(args, flags, draft):
    command = [args.verbatim, "generate", *flags, "--draft", draft, "--ignore-eos", "--json"]
    command += ["-n", str(args.tokens), "--threads", str(args.threads)]
    if args.model:
        command += ["-m", args.model]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command[:2])} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(args, flags):
    """Seconds by turn of plain decoding and of drafting, and the last drafting run."""
    seconds = {"off": [], args.draft: []}
    ids = None
    for turn in range(args.runs):
        order = list(seconds) if turn % 2 == 0 else list(seconds)[::-1]
        for draft in order:
            result = run(args, flags, draft)
            ids = ids or result["ids"]
            if result["ids"] != ids:
                fail("the tokens differ; `verbatim check` tells where")
            seconds[draft].append(result["metrics"]["time"])
            if draft != "off":
                last = result
    return seconds, last


def main():
    args = typed()
    results = []
    for name, flags in texts(args).items():
        seconds, last = measure(args, flags)
        plain, drafted = seconds["off"], seconds[args.draft]
        pairs = [a / b for a, b in zip(plain, drafted)]
        metrics = last["metrics"]
        results.append(
            {
                "text": name,
                "tokens": len(last["ids"]),
                "plain_tokens_per_second": args.tokens * args.runs / sum(plain),
                "ratio_of_sums": sum(plain) / sum(drafted),
                "ratio_of_fastest": min(plain) / min(drafted),
                "median_of_pairs": statistics.median(pairs),
                "pairs": pairs,
                "tokens_per_pass": last["tokens_per_pass"],
                "drafted": metrics["drafted"],
            }
        )
    if args.json:
        print(json.dumps({"runs": args.runs, "draft": args.draft, "texts": results}))
        return
    print(f"{args.draft} : plain decoding, {args.runs} turns of each, {args.tokens} tokens, {args.threads} threads\n")
    print(f"{'text':<18}{'plain tok/s':>12}{'sums':>8}{'fastest':>9}{'pairs, median':>15}{'worst':>7}{'tokens/pass':>13}")
    for r in results:
        print(
            f"{r['text']:<18}{r['plain_tokens_per_second']:>12.1f}{r['ratio_of_sums']:>8.3f}{r['ratio_of_fastest']:>9.3f}"
            f"{r['median_of_pairs']:>15.3f}{min(r['pairs']):>7.3f}{r['tokens_per_pass']:>13.2f}"
        )


main()
