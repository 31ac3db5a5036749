"""Writes more-chats.json: conversations and small templates, rendered by jinja2 set up as `transformers` sets it up.

Usage: more_chats.py > more-chats.json
"""

import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
QWEN = (HERE / "qwen3.5-chat.jinja").read_text(encoding="utf-8")


def call(arguments, name="f"):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "Do it."}
TOOL = {"type": "function", "function": {"name": "f", "description": "é \"q\" <b> 'x' \u2028\u007f\t", "parameters": {}}}
VALUES = {
    "text": "a\nb", "yes": True, "no": False, "nothing": None, "int": -3, "big": 1e16, "small": 1e-5, "half": 0.5, "one": 1.0,
    "list": [1, "x", None, {"b": True, "a": []}], "map": {"z": 1, "a": {"é": "<&>"}}, "empty": {}, "quote": "it's \"so\"",
}

QWEN_CASES = [
    ("argument values", [USER, {"role": "assistant", "content": "", "tool_calls": [call(VALUES)]}], {}),
    ("null content", [USER, {"role": "assistant", "content": None, "tool_calls": [call({})]}], {}),
    ("parallel calls and results", [
        USER,
        {"role": "assistant", "content": " On it. \n", "tool_calls": [call({"a": 1}), call({"b": "2"}, "g"), call({}, "h")]},
        {"role": "tool", "content": "1"}, {"role": "tool", "content": [{"type": "text", "text": "2"}]},
        {"role": "tool", "content": "3"}, {"role": "assistant", "content": "<think>\n\nso\n</think>\n\nDone."}, USER,
    ], {"tools": [TOOL, TOOL]}),
    ("no tools given as none", [USER], {"tools": None}),
    ("no tools given as a list", [USER], {"tools": []}),
    ("thinking off", [USER, {"role": "assistant", "content": "x"}, USER], {"enable_thinking": False}),
    ("thinking kept", [USER, {"role": "assistant", "content": "<think>a</think>b</think>c"}], {"preserve_thinking": True}),
    ("images", [{"role": "user", "content": [
        {"type": "image", "image": "x"}, {"type": "text", "text": "what"}, {"type": "video"}, {"image_url": {}}]}],
        {"add_vision_id": True}),
    ("image in system", [{"role": "system", "content": [{"type": "image"}]}, USER], {}),
    ("unknown part", [{"role": "user", "content": [{"type": "sound"}]}], {}),
    ("number as content", [{"role": "user", "content": 3}], {}),
    ("only a tool result", [{"role": "user", "content": "<tool_response>\nx\n</tool_response>"}], {}),
    ("unicode spaces", [{"role": "user", "content": "\u3000 x \u00a0\u2003"}], {}),
]

SMALL = {
    "values as text": "{% for v in messages[0].v %}{{ v }}|{{ v | string }}|{{ v | tojson }}\n{% endfor %}",
    "json styles": "{{ messages[0] | tojson(indent=2) }}{{ messages[0] | tojson(sort_keys=true) }}"
                   "{{ messages[0] | tojson(separators=(',', ':')) }}{{ messages[0] | tojson(ensure_ascii=true) }}",
    "blocks": "  {% if true %}\n  a\n  {% endif %}\n\n  {#- c #}\n b {# d #}\n{% for m in messages %}\n{{ m.role }}\n{% endfor %}\n\n",
    "methods": "{{ ' a b '.strip() ~ 'x,y'.split(',')[-1] ~ 'abc'.startswith('ab') | int ~ 'Ab'.upper() ~ 'aXb'.replace('X', '-') }}"
               "{{ messages[0].get('role', 'none') }}{{ messages[0].get('rule', 'none') }}{{ messages[::-1][0].role }}"
               "{% for k, v in messages[0].items() %}{{ k }};{% endfor %}",
    "defined": "{{ tools is none }} {{ tools is defined }} {{ documents is none }} {{ nothing is defined }}[{{ nothing }}]"
               "{{ messages[0].nothing is defined }}[{{ messages[0].nothing }}]",
    "attribute of nothing": "{{ nothing.at.all }}",
    "loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index0 }}{{ m.role }}{% break %}{% endfor %}",
    "raise in a macro": "{% macro f(x) %}{{ raise_exception('no ' ~ x) }}{% endmacro %}{{ f('way') }}",
}
SMALL_MESSAGES = [
    {"role": "user", "v": [True, False, None, 1, -2, 1.0, 0.1, 1e100, 1e-7, 123456789012345678, "é\"'", [1, ["a'b", "c\"d"]], {"k": None}]},
    {"role": "assistant", "content": "x"},
]


def dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def render(template, messages, options):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = dumps
    env.globals["raise_exception"] = raise_exception
    variables = {"tools": None, "documents": None, "add_generation_prompt": False, **options}
    return env.from_string(template).render(messages=messages, **variables)


def main():
    cases = []
    for name, messages, options in QWEN_CASES:
        cases.append({"name": name, "messages": messages, "options": {"add_generation_prompt": True, **options}})
    for name, template in SMALL.items():
        cases.append({"name": name, "template": template, "messages": SMALL_MESSAGES, "options": {}})
    for case in cases:
        try:
            case["rendered"] = render(case.get("template", QWEN), case["messages"], case["options"])
        except jinja2.exceptions.TemplateError as error:
            case["error"] = str(error)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    print(f"[\n{lines}\n]")


main()
