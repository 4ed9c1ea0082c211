"""What bench_gpu_kernels.py prints, read back."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
from roofline_profile import Kernel, Profile, parse  # noqa: E402

TEXT = """a warning
== iq4_xs, context 2048, 8 rows: a step 2.900 ms under the profiler
matmul_iq4_xs_r8      160x1x2 (192) after swiglu      16.0 a step     45.05 us (44.58 … 46.05)    0.721 ms a step  gap before   0.06
deltanet_step         48x2x1 (256) after matmul_iq4_xs_r8   12.0 a step      7.20 us (6.88 … 7.62)    0.087 ms a step  gap before   0.10
kernels 153 a step, busy 1.790 ms a step
"""


def test_a_profile() -> None:
    kernels = (
        Kernel("matmul_iq4_xs_r8", 320, "swiglu", 16, 45.05),
        Kernel("deltanet_step", 96, "matmul_iq4_xs_r8", 12, 7.2),
    )
    assert parse(TEXT) == [Profile("iq4_xs", 2048, 8, 2.9, kernels)]
    assert parse(TEXT)[0].layers == 16
    assert parse("kernels") == []
