"""Writes the pocket model's corpus and trains its tokenizer.

The corpus is prose (the HTML documentation that comes with a Rust toolchain), Python source (the standard library of
the interpreter that runs this) and generated conversations (`tasks.py`). Written to the output folder: `corpus.json`,
`tokenizer.json`, and the token ids of each part as `docs.npy`, `py.npy`, `chats.npy` (uint16, an end-of-text token
behind every document).
"""

import argparse
import html
import json
import re
import subprocess
import sysconfig
from pathlib import Path

from tasks import TaskWriter

BOOKS = (
    "book rust-by-example reference cargo edition-guide nomicon embedded-book rustc rustdoc error_codes clippy"
).split()
SPECIAL_TOKENS = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call>".split()
VOCABULARY = 4096
# The family's pre-tokenizer: words with their marks, single digits, punctuation, line ends, blanks.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def rust_documentation():
    """The folder of HTML books of the active Rust toolchain."""
    root = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    return Path(root) / "share/doc/rust/html"


def plain_text(page):
    """The text of an HTML page's main part."""
    main = re.search(r"<main>(.*?)</main>", page, re.S)
    text = main.group(1) if main else page
    text = re.sub(r"<(script|style|nav|button)[^>]*>.*?</\1>", "", text, flags=re.S)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def read_text(path):
    """The file's text, or None if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf8")
    except UnicodeDecodeError:
        return None


def sorted_files(folder, ending, left_out):
    """Files below `folder` with that ending, in the order of their paths, without those that name a part left out."""
    files = sorted(folder.rglob(f"*{ending}"), key=str)
    return [file for file in files if not any(part in f"/{file.relative_to(folder)}" for part in left_out)]


def read_documents(folder):
    """Prose: pages of 400 to 60,000 characters, each beginning once."""
    documents = {}
    for book in BOOKS:
        for path in sorted_files(folder / book, ".html", ("print.html", "toc", "404")):
            page = read_text(path)
            text = plain_text(page) if page is not None else ""
            if 400 < len(text) < 60_000:
                documents.setdefault(text[:200], text)
    return list(documents.values())


def read_python(folder):
    """Source files of 300 to 120,000 characters, tests and tables left out."""
    texts = []
    for path in sorted_files(folder, ".py", ("site-packages", "/test", "idlelib", "encodings")):
        text = read_text(path)
        if text is not None and 300 < len(text) < 120_000:
            texts.append(text)
    return texts


def train_tokenizer(texts):
    """A byte-level BPE tokenizer with the family's pre-tokenizer and special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer


def encode(tokenizer, texts):
    """All texts as one array of token ids."""
    import numpy

    end_of_text = tokenizer.token_to_id("<|endoftext|>")
    ids = []
    for start in range(0, len(texts), 512):
        for encoding in tokenizer.encode_batch(texts[start : start + 512]):
            ids += encoding.ids + [end_of_text]
    return numpy.array(ids, dtype=numpy.uint16)


def arguments():
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--rust-docs", type=Path, help="HTML books (default: those of the active toolchain)")
    parser.add_argument("--python-source", type=Path, help="Python files (default: the standard library)")
    parser.add_argument("--chats", type=int, default=60_000, help="conversations to generate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=11, help="seed of the conversations (default: %(default)s)")
    return parser.parse_args()


def main():
    """Reads, generates, trains, encodes."""
    args = arguments()
    import numpy

    args.out.mkdir(parents=True, exist_ok=True)
    documents = read_documents(args.rust_docs or rust_documentation())
    if not documents:
        raise SystemExit("no documentation was found: install the toolchain's rust-docs or name it with --rust-docs")
    python = read_python(args.python_source or Path(sysconfig.get_paths()["stdlib"]))
    writer = TaskWriter(documents, args.seed)
    chats = [writer.conversation() for _ in range(args.chats)]
    corpus = {"docs": documents, "py": python, "chats": chats}
    (args.out / "corpus.json").write_text(json.dumps(corpus))

    # Special tokens are added, not learnt: the learner sees the conversations without them.
    bare_chats = [re.sub(r"<\|[a-z_]+\|>|</?think>", "", chat) for chat in chats[:6000]]
    tokenizer = train_tokenizer(documents + python[::2] + bare_chats)
    tokenizer.save(str(args.out / "tokenizer.json"))
    print("vocabulary:", tokenizer.get_vocab_size())
    for name, texts in corpus.items():
        ids = encode(tokenizer, texts)
        numpy.save(args.out / f"{name}.npy", ids)
        print(f"{name}: {len(texts)} texts, {ids.size} tokens, {sum(map(len, texts)) / ids.size:.2f} characters each")


if __name__ == "__main__":
    main()
