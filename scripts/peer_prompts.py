"""Prompts for the scripts that set verbatim beside llama.cpp: token ids, and verbatim's plain continuation of them.

The built-in prompts are read from the program's source, so that they are the ones that `verbatim bench` runs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "src" / "cli" / "tasks.rs"
VERBATIM = ROOT / "target" / "release" / "verbatim"


def output(command, text=None):
    """What `command` prints; if it fails, so does the script."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def built_in():
    """Task and text of every built-in prompt, in the program's order."""
    source = TASKS.read_text(encoding="utf-8")

    def strings(name):
        body = re.search(rf"const {name}: \[&str; \d+\] = \[(.*?)\n\];", source, re.DOTALL).group(1)
        literals = re.findall(r'"((?:[^"\\]|\\.)*)"', body, re.DOTALL)
        # A backslash at a line's end joins it with the next one; the other escapes are JSON's.
        return [json.loads('"' + re.sub(r"\\\n\s*", "", literal) + '"') for literal in literals]

    tasks = re.findall(r'\("([^"]+)", &([A-Z]+)\)', source)
    return [{"task": task, "prompt": text} for task, name in tasks for text in strings(name)]


def from_file(path):
    """Prompts of a file of JSON objects, one a line, each with a "prompt" or "prompt_ids" and perhaps a "task"."""
    prompts = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not prompts or not all(prompt.get("prompt_ids") or prompt.get("prompt") for prompt in prompts):
        sys.exit(f'{path}: every line must be an object with a "prompt" or "prompt_ids"')
    return [{"task": "prompts"} | prompt for prompt in prompts]


def continued(prompt, verbatim, options):
    """`prompt` with its "prompt_ids", and the "ids" that verbatim's plain decoding goes on with."""
    command = [verbatim, "generate", "--json", "--draft", "off", *options]
    if prompt.get("prompt_ids"):
        command += ["--prompt-ids", ",".join(map(str, prompt["prompt_ids"]))]
    else:
        command += ["--", prompt["prompt"]]
    told = json.loads(output(command))
    return prompt | {"prompt_ids": told["prompt_ids"], "ids": told["ids"]}
