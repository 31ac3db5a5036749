"""What the kernels' text and the backend's say: parameters of kernels, formats, grids, functions.

Owns: reading CUDA and Rust as far as the model follows them. Refuses to know: what the model makes of it.
"""

import re
from functools import cache
from pathlib import Path


def without_comments(text):
    """Text without `//` comments, continued lines joined."""
    return re.sub(r"//[^\n]*", "", text).replace("\\\n", " ")


@cache
def whole(path):
    """A kernel file's text, headers in place of their includes."""
    text = without_comments(Path(path).read_text(encoding="utf-8"))
    return re.sub(r'#include "([^"]+)"', lambda m: whole(Path(path).parent / m[1]), text)


def balanced(text, at):
    """What stands between the bracket that opens at `at` and its partner."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    opening, closing, depth = text[at], pairs[text[at]], 0
    for end in range(at, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if depth == 0:
            return text[at + 1 : end]
    raise SystemExit(f"no {closing} for the {opening} before {text[at:at + 40]!r}")


def split(text):
    """Parts between commas that stand in no bracket."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def expand(text, macros):
    """`text` with macros replaced; `macros`: {name: (parameters or None, body)}."""
    for _ in range(8):
        before = text
        for name, (parameters, body) in macros.items():
            if parameters is None:
                text = re.sub(rf"\b{name}\b", lambda _: body, text)
                continue
            while m := re.search(rf"\b{name}\(", text):
                inside = balanced(text, m.end() - 1)
                filled = body
                for parameter, value in zip(parameters, split(inside)):
                    filled = re.sub(rf"(?:##)?\b{parameter}\b|##{parameter}\b", lambda _: value, re.sub(r"\s*##\s*", "##", filled))
                text = text[: m.start()] + filled.replace("##", "") + text[m.end() + len(inside) + 1 :]
        if text == before:
            break
    return text


@cache
def signatures(path):
    """{kernel: [(name, "ptr", "int" or "float")]} of a kernel file."""
    text, macros = whole(path), {}
    for name, parameters, body in re.findall(r"#define (\w+)(\([\w, ]*\))?[ \t]+([^\n]+)", text):
        macros[name] = (split(parameters[1:-1]) if parameters else None, body)
    out = {}
    for m in re.finditer(r"\bKERNEL\(\w+, \w+\)\s*(\w+)\(", text):
        out[m[1]] = []
        for parameter in split(expand(balanced(text, m.end() - 1), macros)):
            words = parameter.replace("*", " * ").split()
            kind = "ptr" if "*" in words else "float" if "float" in words else "int"
            out[m[1]].append((words[-1], kind))
    return out


@cache
def formats(path):
    """{name: {field: number}} of the formats in quant.cuh; how codes stand is a word."""
    text = without_comments(Path(path).read_text(encoding="utf-8"))
    head = re.search(r"#define FORMAT\(([^)]*)\)", text)
    fields, out = split(head[1]), {}
    for m in re.finditer(r"^FORMAT\(([^)]*)\)", text, re.M):
        values = split(m[1])
        out[values[0]] = {f: v if f == "codes" else int(v) for f, v in zip(fields[1:], values[1:])}
    return out


@cache
def rust(path):
    """A Rust file's text up to its tests, without comments."""
    return without_comments(Path(path).read_text(encoding="utf-8")).split("#[cfg(test)]")[0]


def function(path, name, after=""):
    """The text of a Rust function without white space and trailing commas, the first behind the words `after`."""
    text = rust(path)
    text = text[text.find(after) :]
    m = re.search(rf"\bfn {name}\b", text)
    if not m:
        raise SystemExit(f"{path}: no function {name}")
    body = balanced(text, text.index("{", m.end()))
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text[m.start() : m.end()] + body))


def number(path, name):
    """A Rust constant."""
    m = re.search(rf"\bconst {name}: \w+ = ([\d_]+);", rust(path))
    if not m:
        raise SystemExit(f"{path}: no constant {name} that is a number")
    return int(m[1].replace("_", ""))


def numbers(path, name):
    """A Rust constant that is an array."""
    m = re.search(rf"\bconst {name}: \[[^\]]*\] = \[([^\]]*)\];", rust(path))
    return [int(n) for n in split(m[1])] if m else []


def launched(folder):
    """{kernel: (file, its grid in Rust's words)} of all launches in a folder of Rust; products have their own plan."""
    names, out = {}, {}
    texts = [rust(path) for path in sorted(Path(folder).glob("*.rs"))]
    for text in texts:
        for constant, file, name in re.findall(r'\bconst (\w+): Kernel = kernel\("(\w+)", "(\w+)"\);', text):
            names[constant] = file, name
    for text in texts:
        for m in re.finditer(r"kernel: (?:super::norm::)?([A-Z_]+),", text):
            inner = balanced(text, text.rindex("Launch {", 0, m.start()) + 7)
            at = inner.find("grid([")
            if at >= 0:
                words = balanced(inner, at + 4)
            else:
                at = text.rindex("grid([", 0, m.start())
                words = balanced(text, at + 4)
            file, name = names[m[1]]
            out[name] = file, re.sub(r",(?=\s*[)\]}])", "", " ".join(words.split()))
    return out
