"""Writes pocket-texts.json: texts and their ids in the pocket vocabulary, by the `tokenizers` package of Python.

Usage: pocket_texts.py TOKENIZER_JSON GOLDEN_JSON > pocket-texts.json
"""

import json
import sys

import tokenizers

TEXTS = {
    "devanagari marks": "हिन्दी में लिखा हुआ क्षि",
    "thai marks": "ภาษาไทยไม่มีช่องว่าง น้ำ",
    "hebrew marks, not in canonical order": "שָׁלוֹם שָׁ",
    "arabic marks": "السَّلَامُ عَلَيْكُمْ",
    "mark without a letter": " \u0301x \u0301 1\u0301",
    "emoji joined": "👩‍👩‍👧‍👦 👍🏽 🇫🇷 ❤️",
    "composed and decomposed": "é e\u0301 ｅ Å Å 각 각",
    "carriage returns": "a\r\nb\r\n\r\nc\r\r\nd \r\n e\t\r\n",
    "digit runs": "007 1234567890 3.14159 1e-10 0xFF ١٢٣ ①②",
    "contractions": "I'm I'M it'S we'Ll x'vé 'sun don\u2019t 'ſ",
    "spaces at the end": "a  b   c \n \n\n   ",
    "punctuation runs": "...!!!???\n\n#!/bin/sh ---\r\n",
    "think in user text": "say <think> and </think>, <tool_call>, <|im_end|>.",
    "specials side by side": "<|im_start|><|im_start|>user<think></think><|im_end|>\n",
    "nearly special": "<|im_start|<think <|im_end|>> < think>",
    "special after a mark": "e<think>\u0301",
    "control characters": "\u0000\u0001\u007f\u0085\u200b\ufeff",
    "outside the basic plane": "𝕳𝖊𝖑𝖑𝖔 𠮷 \U0010ffff",
    "long run": "a" * 300 + " " * 300 + "b",
    "empty": "",
}


def main():
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    texts = dict(TEXTS)
    for golden in json.load(open(sys.argv[2], encoding="utf-8")):
        texts["prompt " + golden["name"]] = golden["prompt"]
        assert tokenizer.encode(golden["prompt"], add_special_tokens=False).ids == golden["prompt_ids"]
    cases = []
    for name, text in texts.items():
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"name": name, "text": text, "ids": ids, "ids_specials_as_text": as_text})
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    print(f"[\n{lines}\n]")


main()
