"""The pocket model's tasks: short ChatML conversations whose answer repeats the input with an edit.

Everything is drawn from one seeded generator in a fixed order, so a seed is a data set.
"""

import json
import random
import re

NOUNS = (
    "order user item price total count name index value result buffer token block state layer cache key node edge "
    "path file line word page score weight batch step width height depth color shape owner status level group field "
    "label limit offset size rate"
).split()
VERBS = (
    "load save read write find parse build check merge split sort filter update remove insert print format send "
    "fetch open close reset apply encode decode copy move count join"
).split()
FIRST_NAMES = (
    "Ada Alan Grace Linus Barbara Dennis Ken Margaret John Edsger Donald Tony Niklaus Frances Radia Leslie Shafi "
    "Tim Vint Hedy"
).split()
CITIES = "Paris Oslo Lima Cairo Tokyo Delhi Rome Quito Accra Lyon Porto Turin Basel Kyoto Perth Leeds".split()
CSV_HEADER = "name,city,age,id"


def user_turn(question):
    """The prompt that asks `question`, up to where the answer begins."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def fenced(code):
    """`code` as a Markdown block of Python."""
    return f"```python\n{code}\n```"


def csv_text(records):
    """Records as comma-separated lines under a header."""
    return "\n".join([CSV_HEADER] + [f"{r['name']},{r['city']},{r['age']},{r['id']}" for r in records])


class TaskWriter:
    """Draws conversations; `documents` are the prose that the quoting task quotes."""

    def __init__(self, documents, seed=11):
        self.documents = documents
        self.random = random.Random(seed)
        weighted = [
            (self.rename, 4),
            (self.repeat, 2),
            (self.docstring, 3),
            (self.hints, 3),
            (self.csv_to_json, 3),
            (self.json_to_csv, 2),
            (self.set_field, 3),
            (self.sort_numbers, 1),
            (self.numbered_list, 2),
            (self.capitals, 1),
            (self.quote, 3),
        ]
        self.pool = [task for task, weight in weighted for _ in range(weight)]

    def conversation(self):
        """One question and its answer in ChatML."""
        question, answer = self.random.choice(self.pool)()
        return f"{user_turn(question)}{answer}<|im_end|>\n"

    def identifier(self):
        """A function name of one or two words."""
        kind = self.random.random()
        verb, noun = self.random.choice(VERBS), self.random.choice(NOUNS)
        if kind < 0.5:
            return f"{verb}_{noun}"
        return noun if kind < 0.8 else f"{noun}_{self.random.choice(NOUNS)}"

    def statement(self, argument, variable):
        """One or two lines of a function's body."""
        draw = self.random.randint
        kind = draw(0, 5)
        if kind == 0:
            return [f"    for i in range(len({argument})):", f"        {variable} += {argument}[i]"]
        if kind == 1:
            return [f"    if {argument} > {draw(1, 99)}:", f"        {variable} = {argument} - {draw(1, 9)}"]
        if kind == 2:
            return [f"    {variable} = {variable} + {argument} * {draw(2, 9)}"]
        if kind == 3:
            return [f"    if not {argument}:", f"        return {variable}"]
        if kind == 4:
            return [f"    while {variable} < {draw(10, 99)}:", f"        {variable} += {draw(1, 9)}"]
        return [f"    print({argument}, {variable})"]

    def function(self):
        """A function: its name, its arguments, its variable and its lines."""
        name = self.identifier()
        arguments = list(dict.fromkeys(self.random.choice(NOUNS) for _ in range(self.random.randint(1, 3))))
        variable = self.random.choice([noun for noun in NOUNS if noun not in arguments])
        lines = [f"def {name}({', '.join(arguments)}):"]
        lines.append(f"    {variable} = {self.random.choice(['0', '1', '[]', '{}', 'None'])}")
        for _ in range(self.random.randint(1, 4)):
            lines += self.statement(self.random.choice(arguments), variable)
        lines.append(f"    return {variable}")
        return name, arguments, variable, lines

    def records(self, most):
        """Two to `most` people."""
        return [
            {
                "name": self.random.choice(FIRST_NAMES),
                "city": self.random.choice(CITIES),
                "age": self.random.randint(18, 90),
                "id": self.random.randint(100, 999),
            }
            for _ in range(self.random.randint(2, most))
        ]

    def words(self):
        """Four to ten different nouns."""
        return self.random.sample(NOUNS, self.random.randint(4, 10))

    def rename(self):
        """Rename a variable."""
        _, arguments, variable, lines = self.function()
        new = self.random.choice([noun for noun in NOUNS if noun != variable and noun not in arguments])
        code = "\n".join(lines)
        question = f"Rename the variable `{variable}` to `{new}` in this function.\n\n{fenced(code)}"
        return question, fenced(re.sub(rf"\b{variable}\b", new, code))

    def repeat(self):
        """Repeat a function."""
        code = fenced("\n".join(self.function()[3]))
        return f"Repeat this function exactly.\n\n{code}", code

    def docstring(self):
        """Add a docstring."""
        _, arguments, variable, lines = self.function()
        doc = f'    """Return the {variable} of the {" and ".join(arguments)}."""'
        answer = "\n".join([lines[0], doc] + lines[1:])
        question = "\n".join(lines)
        return f"Add a docstring to this function.\n\n{fenced(question)}", fenced(answer)

    def hints(self):
        """Add type hints."""
        name, arguments, _, lines = self.function()
        head = f"def {name}(" + ", ".join(f"{argument}: int" for argument in arguments) + ") -> int:"
        question, answer = "\n".join(lines), "\n".join([head] + lines[1:])
        return f"Add type hints to this function.\n\n{fenced(question)}", fenced(answer)

    def csv_to_json(self):
        """Convert CSV to JSON."""
        records = self.records(6)
        return f"Convert this CSV to JSON.\n\n{csv_text(records)}", json.dumps(records, indent=2)

    def json_to_csv(self):
        """Convert JSON to CSV."""
        records = self.records(6)
        return f"Convert this JSON to CSV.\n\n{json.dumps(records, indent=2)}", csv_text(records)

    def set_field(self):
        """Change one person's city."""
        records = self.records(5)
        name = records[self.random.randrange(len(records))]["name"]
        city = self.random.choice(CITIES)
        changed = [dict(r, city=city) if r["name"] == name else r for r in records]
        question = f"Set the city of {name} to {city}.\n\n{json.dumps(records, indent=2)}"
        return question, json.dumps(changed, indent=2)

    def sort_numbers(self):
        """Sort a few numbers."""
        numbers = [self.random.randint(1, 99) for _ in range(self.random.randint(4, 9))]
        question = f"Sort these numbers.\n\n{', '.join(map(str, numbers))}"
        return question, ", ".join(map(str, sorted(numbers)))

    def numbered_list(self):
        """Number some words."""
        words = self.words()
        answer = "\n".join(f"{i + 1}. {word}" for i, word in enumerate(words))
        return f"Write these words as a numbered list.\n\n{', '.join(words)}", answer

    def capitals(self):
        """Write words in capitals."""
        words = self.words()
        answer = ", ".join(word.upper() for word in words)
        return f"Write these words in capitals.\n\n{', '.join(words)}", answer

    def quote(self):
        """Quote a paragraph of the prose."""
        document = self.random.choice(self.documents)
        paragraphs = [p for p in document.split("\n\n") if 80 < len(p) < 500]
        if not paragraphs:
            return self.numbered_list()
        text = " ".join(self.random.choice(paragraphs).split())
        return f"Quote this paragraph.\n\n{text}", f"> {text}"
