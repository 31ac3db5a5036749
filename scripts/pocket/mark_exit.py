#!/usr/bin/env python3
"""Write into a GGUF file how many of its first layers were trained to guess by themselves.

    python3 mark_exit.py pocket-Q4_K_M.gguf --layers 2 --out marked.gguf

Adds the key `verbatim.exit_layers`, which drafting reads; tensors are copied as they are.
"""

import argparse
import struct
import sys
from pathlib import Path

KEY = b"verbatim.exit_layers"
# Bytes of GGUF values by type, where they are fixed.
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
UINT32, STRING, ARRAY = 4, 8, 9


class Reader:
    """Walks over the front of a GGUF file."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.value(inner)
            return None
        start, self.at = self.at, self.at + FIXED[kind]
        return self.data[start : self.at]


def marked(data, layers):
    """The file's bytes with the key added."""
    reader = Reader(data)
    if data[:4] != b"GGUF":
        sys.exit("mark_exit.py: not a GGUF file")
    reader.at = 8
    tensors, keys = reader.number("Q"), reader.number("Q")
    alignment = 32
    for _ in range(keys):
        key, kind = reader.text(), reader.number("I")
        value = reader.value(kind)
        if key == KEY:
            sys.exit("mark_exit.py: the file is marked already")
        if key == b"general.alignment":
            (alignment,) = struct.unpack("<I", value)
    metadata = reader.at
    for _ in range(tensors):
        reader.text()
        dims = reader.number("I")
        reader.at += 8 * dims + 4 + 8
    infos = data[metadata : reader.at]
    tail = data[reader.at + -reader.at % alignment :]
    entry = struct.pack("<Q", len(KEY)) + KEY + struct.pack("<II", UINT32, layers)
    head = data[:8] + struct.pack("<QQ", tensors, keys + 1) + data[24:metadata] + entry + infos
    return head + bytes(-len(head) % alignment) + tail


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--layers", type=int, required=True, help="how many layers")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    args = parser.parse_args()
    args.out.write_bytes(marked(args.model.read_bytes(), args.layers))


main()
