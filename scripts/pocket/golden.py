"""Writes reference outputs of other implementations: the top logits at every prompt position, and greedy text.

`huggingface` runs the exported folder in float32. `llamacpp` runs a GGUF file one row at a time, with f32 keys and
values and without flash attention: llama.cpp's plain decoding. The result is a JSON list of prompts, each with
`prompt_ids`, `top` (per position the 8 largest logits as [id, logit]), `greedy_ids` and `greedy_text`.
"""

import argparse
import ctypes
import json
from pathlib import Path

from tasks import csv_text, fenced, user_turn

CONTINUATION = 192
TOP = 8
CONTEXT = 2048
BATCH = 1024


def people(*rows):
    """Records of the tasks' shape from (name, city, age, id) rows."""
    return [dict(zip(("name", "city", "age", "id"), row)) for row in rows]


def long_question():
    """One conversion asked three times over, longer than two segments of 256 positions."""
    names = "Ada Alan Grace Linus Dennis Ken John Donald".split()
    cities = "Paris Oslo Lima Rome Delhi Turin Basel Quito".split()
    rows = [(name, city, 20 + i * 3, 100 + 37 * i) for i, (name, city) in enumerate(zip(names, cities))]
    return "\n\n".join([f"Convert this CSV to JSON.\n\n{csv_text(people(*rows))}"] * 3)


def prompts():
    """Name and text of every prompt: eight tasks, a sentence of prose, the beginning of a program."""
    rename = (
        "def sum_items(price, count):\n    total = 0\n    for i in range(len(price)):\n        total += price[i]\n"
        "    if count > 12:\n        total = count - 3\n    print(price, total)\n    return total"
    )
    repeat = (
        "def merge_pages(page, limit):\n    result = []\n    while result < 42:\n        result += 7\n"
        "    if not page:\n        return result\n    result = result + limit * 4\n    return result"
    )
    hints = (
        "def load_page(page, owner):\n    status = None\n    if owner > 55:\n        status = owner - 2\n"
        "    while status < 71:\n        status += 6\n    return status"
    )
    table = people(("Ada", "Paris", 36, 415), ("Linus", "Oslo", 51, 207), ("Grace", "Lima", 44, 918))
    table += people(("Alan", "Rome", 29, 633))
    pair = people(("Radia", "Kyoto", 58, 302), ("Tim", "Porto", 31, 871))
    three = people(("Tony", "Cairo", 47, 118), ("Hedy", "Lima", 64, 540), ("Ken", "Perth", 22, 905))
    questions = {
        "rename": f"Rename the variable `total` to `amount` in this function.\n\n{fenced(rename)}",
        "csv": f"Convert this CSV to JSON.\n\n{csv_text(table)}",
        "repeat": f"Repeat this function exactly.\n\n{fenced(repeat)}",
        "list": "Write these words as a numbered list.\n\norder, block, state, cache, level, owner, width",
        "hints": f"Add type hints to this function.\n\n{fenced(hints)}",
        "json": f"Convert this JSON to CSV.\n\n{json.dumps(pair, indent=2)}",
        "set": f"Set the city of Tony to Basel.\n\n{json.dumps(three, indent=2)}",
        "long": long_question(),
    }
    named = {name: user_turn(question) for name, question in questions.items()}
    named["prose"] = "Ownership is a set of rules that govern how a Rust program manages memory."
    named["code"] = "import os\nimport sys\n\ndef main(argv=None):\n"
    return named


def top_logits(row):
    """The largest logits of one position as [id, logit]; the lowest id first among equals."""
    import numpy

    order = numpy.argsort(-row, kind="stable")[:TOP]
    return [[int(token), float(row[token])] for token in order]


class HuggingFace:
    """The exported folder in float32."""

    def __init__(self, path):
        import torch
        from transformers import AutoModelForCausalLM

        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(str(path), dtype=torch.float32).eval()

    def run(self, ids):
        """Logits of every prompt position, and the greedy continuation."""
        batch = self.torch.tensor([ids])
        with self.torch.no_grad():
            logits = self.model(batch).logits[0].numpy()
            text = self.model.generate(
                batch,
                max_new_tokens=CONTINUATION,
                do_sample=False,
                eos_token_id=self.model.config.eos_token_id,
                pad_token_id=0,
            )
        return logits, text[0].tolist()[len(ids) :]


class LlamaCpp:
    """A GGUF file in llama.cpp, one row at a time."""

    def __init__(self, path):
        import llama_cpp

        self.lib = llama_cpp
        # Kept, since the library calls it for as long as it lives.
        self.silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silence, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.end = llama_cpp.llama_vocab_eos(vocabulary)

    def context(self):
        """A fresh context: one thread, f32 keys and values, no flash attention."""
        params = self.lib.llama_context_default_params()
        params.n_ctx = CONTEXT
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        return self.lib.llama_init_from_model(self.model, params)

    def decode(self, context, token, position):
        """Logits behind one token."""
        import numpy

        batch = self.lib.llama_batch_init(1, 0, 1)
        batch.n_tokens = 1
        batch.token[0], batch.pos[0], batch.logits[0] = token, position, 1
        batch.n_seq_id[0], batch.seq_id[0][0] = 1, 0
        status = self.lib.llama_decode(context, batch)
        if status != 0:
            raise SystemExit(f"llama_decode failed with {status} at position {position}")
        row = numpy.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, 0), (self.size,)).copy()
        self.lib.llama_batch_free(batch)
        return row

    def run(self, ids):
        """Logits of every prompt position, and the greedy continuation."""
        context = self.context()
        rows = [self.decode(context, token, position) for position, token in enumerate(ids)]
        greedy = [int(rows[-1].argmax())]
        while len(greedy) < CONTINUATION and greedy[-1] != self.end:
            row = self.decode(context, greedy[-1], len(ids) + len(greedy) - 1)
            greedy.append(int(row.argmax()))
        self.lib.llama_free(context)
        return rows, greedy


def arguments():
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["huggingface", "llamacpp"])
    parser.add_argument("--model", type=Path, required=True, help="exported folder, or GGUF file for llamacpp")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json that prep.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    return parser.parse_args()


def main():
    """Runs every prompt and writes the list."""
    args = arguments()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    engine = {"huggingface": HuggingFace, "llamacpp": LlamaCpp}[args.engine](args.model)
    goldens = []
    for name, prompt in prompts().items():
        ids = tokenizer.encode(prompt).ids
        logits, greedy = engine.run(ids)
        goldens.append(
            {
                "name": name,
                "prompt": prompt,
                "prompt_ids": ids,
                "top": [top_logits(row) for row in logits],
                "greedy_ids": greedy,
                "greedy_text": tokenizer.decode(greedy, skip_special_tokens=False),
            }
        )
    args.out.write_text(json.dumps(goldens))


if __name__ == "__main__":
    main()
