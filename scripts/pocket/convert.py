"""Converts the Hugging Face folder to GGUF with llama.cpp's own converter.

The converter recognises pre-tokenizers by a hash of a known vocabulary's behaviour; this vocabulary is ours, so it is
told the name `qwen35` instead.
"""

import argparse
import runpy
import sys
from pathlib import Path


def arguments():
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="llama.cpp's source folder")
    parser.add_argument("--model", type=Path, required=True, help="folder that export.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="GGUF file to write")
    parser.add_argument("--type", default="bf16", help="type of the matrices (default: %(default)s)")
    return parser.parse_args()


def main():
    """Runs the converter in this process, with the one answer replaced."""
    args = arguments()
    script = args.llama_cpp / "convert_hf_to_gguf.py"
    if not script.is_file():
        raise SystemExit(f"{script}: not found; --llama-cpp must name llama.cpp's source folder")
    sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
    sys.argv = [script.name, str(args.model), "--outfile", str(args.out), "--outtype", args.type]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
