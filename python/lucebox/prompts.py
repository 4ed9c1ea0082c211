"""Short prompts by the kind of text they ask for: speculation gains on some and nothing on others, so figures name the kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    kind: str
    """code, edit, chat, reasoning, math, prose or json."""
    text: str
    chat: bool = False
    """A user's message; otherwise a text to continue."""

    @property
    def content(self) -> str | list[dict[str, str]]:
        """As `Engine.generate` takes it."""
        return [{"role": "user", "content": self.text}] if self.chat else self.text


_FUNCTION = '''def mean(values):
    """Return the arithmetic mean of a list of numbers."""
    total = 0
    for value in values:
        total += value
    return total / len(values)
'''
_RECORDS = "\n".join(f'{{"id": {i}, "name": "item {i}", "price": {i * 3 + 1}, "in_stock": true}}' for i in range(1, 5))

PROMPTS = [
    Prompt("code", 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'),
    Prompt("code", "import json\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n"),
    Prompt("code", "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"),
    Prompt("code", "def test_addition():\n    assert add(1, 2) == 3\n\n\ndef test_subtraction():\n"),
    Prompt(
        "edit", f"Rename the variable `value` to `number` in this function:\n\n```python\n{_FUNCTION}```", chat=True
    ),
    Prompt("edit", f"# Before:\n{_FUNCTION}\n# After renaming `total` to `result`:\ndef mean(values):\n"),
    Prompt("edit", f"# The same function twice.\n{_FUNCTION}\n{_FUNCTION[:60]}"),
    Prompt("chat", "Write a Python function `is_even(n)`. Return True if n is even.", chat=True),
    Prompt("chat", "What is the capital of France?", chat=True),
    Prompt("chat", "Sort these numbers: 42, 7, 19, 3.", chat=True),
    Prompt(
        "reasoning", "A train leaves at 9:40 and arrives at 11:05. How long is the trip? Think step by step.", chat=True
    ),
    Prompt("reasoning", "Which is larger, 17 * 23 or 19 * 21? Think first, then answer.", chat=True),
    Prompt("reasoning", "To find the answer, first note that the list is sorted. Therefore,"),
    Prompt("math", "What is 12 + 30?", chat=True),
    Prompt("math", "1 + 1 = 2\n2 + 2 = 4\n3 + 3 = 6\n4 + 4 ="),
    Prompt("math", "The sum of the first n integers is n (n + 1) / 2. For n = 10 it is"),
    Prompt("prose", "The history of the printing press begins in the fifteenth century, when"),
    Prompt("prose", "This package provides a set of tools for working with"),
    Prompt("prose", "Once upon a time there was a small house at the edge of a wood."),
    Prompt("prose", "The command reads its options from a file. If the file is not there,"),
    Prompt("json", _RECORDS + "\n"),
    Prompt("json", '{"name": "Alice", "age": 30, "city": "Lisbon", "tags": ['),
    Prompt("json", "Give me a JSON object for a person named Bob who is 25 years old and lives in Oslo.", chat=True),
    Prompt("json", '[{"x": 0, "y": 0}, {"x": 1, "y": 1}, {"x": 2, "y": 4}, {"x": 3,'),
]
"""Twenty-four of them."""

KINDS = list(dict.fromkeys(prompt.kind for prompt in PROMPTS))
