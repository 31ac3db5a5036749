#!/usr/bin/env python3
"""What llama.cpp's `draft-mtp` drafts after every token of a text, to compare another MTP drafter with.

    cmake -S llama.cpp -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-server
    python3 scripts/peer_drafts.py model.gguf --server build/bin/llama-server --threads 2 --json >drafts.json

The server does not tell what it drafts. peer_drafts.cpp, which this script compiles against the server's own libraries
and its source tree (a C++ compiler must be there), asks the same drafter (common/speculative) in the same way.

The texts are verbatim's built-in prompts, or those of a file of JSON objects (one a line, each with a "prompt" or
"prompt_ids" and perhaps a "task" and "ids", the text that follows), with what verbatim's plain decoding goes on with,
or with --own what llama.cpp's does. Every prompt begins with an empty state. After every token of the text, with the
true history, the drafter drafts as many tokens as --depth says; a margin is the difference of the two largest logits
behind a token.

Printed: how many drafts are what the text goes on with, at every depth (of those whose shallower drafts all were). With
--json, for each prompt: task, prompt_ids, ids, and greedy_ids (what llama.cpp chooses after the same history) with
greedy_margins; and passes: pass i is drafted after ids[i], so drafts[k] guesses ids[i + 1 + k].
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from peer_prompts import VERBATIM, built_in, continued, from_file, output

SOURCE = Path(__file__).with_suffix(".cpp")
# A choice with a smaller margin may fall otherwise in another arithmetic.
UNSURE = 0.05


def fail(text):
    sys.exit(f"peer_drafts.py: {text}")


def typed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF file with a next-token-prediction block")
    parser.add_argument("--server", required=True, help="llama-server, built with shared libraries, where it was built")
    parser.add_argument("--source", help="llama.cpp's source tree [the one that the server was built from]")
    parser.add_argument("--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--depth", type=int, default=4, help="tokens drafted after each token [%(default)s]")
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of a text [%(default)s]")
    parser.add_argument("--context", type=int, default=4096, help="most positions of a text [%(default)s]")
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16", help="f32: no flash attention [%(default)s]")
    parser.add_argument("--prompts", help="file of prompts [verbatim's built-in ones]")
    parser.add_argument("--own", action="store_true", help="follow llama.cpp's greedy text, not verbatim's")
    parser.add_argument("--verbatim", default=VERBATIM, help="the program [target/release/verbatim]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if min(args.threads, args.depth, args.tokens, args.context) < 1:
        fail("threads, depth, tokens and context are at least 1")
    return args


def texts(args):
    """The prompts with what follows them."""
    prompts = from_file(args.prompts) if args.prompts else built_in()
    options = ["-m", args.model, "--threads", args.threads, "--kv", args.kv]
    # One token is enough where only the prompt's ids are wanted.
    options += ["--tokens", 1 if args.own else args.tokens]
    ready = {"prompt_ids", "ids"}
    prompts = [p if ready <= p.keys() else continued(p, args.verbatim, options) for p in prompts]
    return [p | {"ids": []} for p in prompts] if args.own else prompts


def source_of(build):
    """The source tree of a folder that CMake has built in."""
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return Path(found.group(1))


def compiled(args, folder):
    """peer_drafts.cpp, compiled in `folder`."""
    server = Path(args.server).resolve()
    build = next((parent for parent in server.parents if (parent / "CMakeCache.txt").exists()), None)
    if not args.source and not build:
        fail(f"{server} is not in the folder it was built in; name llama.cpp's source tree with --source")
    source = Path(args.source) if args.source else source_of(build)
    libraries = server.parent
    if not list(libraries.glob("libllama-common.*")):
        fail(f"{libraries} does not hold llama.cpp's shared libraries; build it with -DBUILD_SHARED_LIBS=ON")
    program = Path(folder, "peer_drafts")
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-o", program, SOURCE]
    command += [f"-I{source / part}" for part in ("include", "common", "ggml/include", "vendor")]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama-common", "-lllama", "-lggml", "-lggml-base"]
    output(command)
    return program


def drafted(args, prompts):
    """For each of `prompts` what llama.cpp chooses and drafts."""
    lists = [ids for prompt in prompts for ids in (prompt["prompt_ids"], prompt["ids"])]
    text = "\n".join(" ".join(map(str, [len(ids), *ids])) for ids in lists)
    with tempfile.TemporaryDirectory() as folder:
        command = [compiled(args, folder), args.model, args.threads, args.depth, args.kv, args.context, args.tokens]
        lines = output(command, text).splitlines()
    if len(lines) != len(prompts):
        fail(f"expected results for {len(prompts)} prompts, found {len(lines)}")
    results = []
    for prompt, line in zip(prompts, lines):
        told = json.loads(line)
        passes = [{"drafts": p["drafts"], "margins": p["drafts_margins"]} for p in told["passes"]]
        result = {"task": prompt["task"], "prompt_ids": prompt["prompt_ids"]}
        result |= {"ids": prompt["ids"] or told["greedy_ids"], "greedy_ids": told["greedy_ids"]}
        results.append(result | {"greedy_margins": told["greedy_ids_margins"], "passes": passes})
    return results


def acceptance(results, depth):
    """For each depth: drafts that could have been accepted, those that are, and all of its drafts that are unsure."""
    lines = [{"depth": k + 1, "drafted": 0, "accepted": 0, "unsure": 0} for k in range(depth)]
    for result in results:
        for i, one in enumerate(result["passes"]):
            following = result["ids"][i + 1 :]
            for line, margin in zip(lines, one["margins"]):
                line["unsure"] += margin < UNSURE
            for line, draft, true in zip(lines, one["drafts"], following):
                line["drafted"] += 1
                if draft != true:
                    break
                line["accepted"] += 1
    return lines


def show(args, results, lines):
    positions = sum(len(result["passes"]) for result in results)
    same = sum(a == b for result in results for a, b in zip(result["ids"], result["greedy_ids"]))
    tokens = sum(len(result["ids"]) for result in results)
    print(f"{args.model}: llama.cpp's draft-mtp, {len(results)} prompts, {positions} positions, {args.kv} K/V")
    print(f"llama.cpp chooses the text's own token at {same} of {tokens} positions")
    print()
    print(f"depth  drafted  accepted  part   margins < {UNSURE}")
    for line in lines:
        part = f"{line['accepted'] / line['drafted']:.3f}" if line["drafted"] else "-"
        print(f"{line['depth']:5}  {line['drafted']:7}  {line['accepted']:8}  {part:5}  {line['unsure']:14}")


def main():
    args = typed()
    results = drafted(args, texts(args))
    lines = acceptance(results, args.depth)
    if args.json:
        about = {"model": args.model, "kv": args.kv, "depth": args.depth, "acceptance": lines}
        print(json.dumps(about | {"prompts": results}))
    else:
        show(args, results, lines)


if __name__ == "__main__":
    main()
