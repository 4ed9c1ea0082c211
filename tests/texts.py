"""Strings that tokenizers and streams get wrong, picked by hand and made at random."""

from __future__ import annotations

import random

HAND_PICKED = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "a\r\nb\r\n\r\n  c",
    "\t\t x\t",
    " \n \n x",
    "x   ",
    "1234567890",
    "3.14159e-10, 0xFF, 1_000",
    "١٢٣ ４５６ ⅷ ½ ²",
    "你好，世界！今天是2026年8月13日 🎉",
    "日本語のテキスト、カタカナ、漢字。",
    "한국어 텍스트 조합",
    "สวัสดีครับ ผมชื่ออเล็กซ์",
    "नमस्ते दुनिया",
    "مرحبا بالعالم",
    "e\u0301a\u0300o\u0308 \u0301alone",
    "\u1e69 s\u0323\u0307 s\u0307\u0323",
    "\u212b \u00c5 A\u030a \ufb01 \u2126",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️",
    "it's IT'S we'Ll they'VE I'd 'tis 's",
    "a<think>b</think>c",
    "<|im_start|>user\nhello<|im_end|>\n",
    "<|im_start|>assistant\n<think>\n",
    "<|im_end|><|im_end|>",
    "<|im_end|",
    "<<think>>",
    "<|im_start|im_end|>",
    "<tool_call>\n<function=f>\n</function>\n</tool_call>",
    "\u0085\u00a0\u1680\u2000\u2028\u202f\u205f\u3000 x \u200b\ufeff",
    "def f(x):\n    return x  # ok\n\n\n\tif x:\n",
    "!!!???...;;; -- ==> <= >= && ||",
    "\x00\x01\x1b[31m\x7f",
    "\U0001d400\U0001d7d8\U00020000\U0010fffd",
]
MARKERS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|mask|>",
]
RANGES = [
    (0x20, 0x7F),
    (0x20, 0x7F),
    (0x09, 0x0E),
    (0x30, 0x3A),
    (0xA0, 0x180),
    (0x300, 0x370),
    (0x900, 0x980),
    (0xE00, 0xE80),
    (0x2000, 0x2070),
    (0x3040, 0x3100),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A4),
    (0x1F300, 0x1F650),
    (0x10000, 0x10FFFF),
]


def random_text(random: random.Random) -> str:
    """Up to 40 pieces: runs of one range, markers, spaces and line breaks."""
    pieces = []
    for _ in range(random.randrange(1, 40)):
        kind = random.random()
        if kind < 0.06:
            pieces.append(random.choice(MARKERS))
        elif kind < 0.25:
            pieces.append(random.choice([" ", "  ", "\n", "\r\n", "\t", " \n", "   \n\n ", "'s", "'LL"]))
        else:
            low, high = random.choice(RANGES)
            pieces.append("".join(chr(random.randrange(low, high)) for _ in range(random.randrange(1, 6))))
    return "".join(pieces)


def texts(count: int, seed: int) -> list[str]:
    """The hand-picked strings and random ones, count in all."""
    source = random.Random(seed)
    return HAND_PICKED + [random_text(source) for _ in range(count - len(HAND_PICKED))]
