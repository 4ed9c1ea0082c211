"""Writes csrc/quants/grids.inc: the grids of the IQ types, from the `gguf` package.

Run only if a grid changes, which none ever did.

usage: python scripts/make_grids.py > csrc/quants/grids.inc
"""

import gguf.quants
import numpy as np

# name here, class there, values a code stands for, bits a code
GRIDS = [
    ("kGridIQ1", "IQ1_S", [-1, 0, 1], 2),
    ("kGridIQ2XXS", "IQ2_XXS", [8, 25, 43], 2),
    ("kGridIQ2XS", "IQ2_XS", [8, 25, 43], 2),
    ("kGridIQ2S", "IQ2_S", [8, 25, 43], 2),
    ("kGridIQ3XXS", "IQ3_XXS", [4, 12, 20, 28, 36, 44, 52, 62], 3),
    ("kGridIQ3S", "IQ3_S", [1, 3, 5, 7, 9, 11, 13, 15], 3),
]


def packed(grid: np.ndarray, values: list[int], bits: int) -> np.ndarray:
    """grid [rows, 4 or 8] as one 16-bit number a row, the first value in the lowest bits."""
    codes = np.searchsorted(values, grid)
    assert (np.array(values)[codes] == grid).all()
    return (codes << (bits * np.arange(grid.shape[1]))).sum(axis=1)


def main() -> None:
    print("// Made by scripts/make_grids.py. One grid row a number: 8 codes of 2 bits (IQ1, IQ2) or 4 of 3 bits (IQ3),")
    print("// the first lowest.")
    for name, cls, values, bits in GRIDS:
        quant = getattr(gguf.quants, cls)
        quant.init_grid()
        rows = [f"0x{row:04x}" for row in packed(quant.grid.reshape(quant.grid_shape).astype(int), values, bits)]
        print(f"constexpr uint16_t {name}[{len(rows)}] = {{")
        for at in range(0, len(rows), 16):
            print("    " + ", ".join(rows[at : at + 16]) + ",")
        print("};")


if __name__ == "__main__":
    main()
