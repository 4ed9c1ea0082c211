"""Loops, work and waits of compiled kernels, on listings written for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
import roofline_code as code  # noqa: E402

LISTING = """
	//----- nvinfo : EIATTR_REGCOUNT
	.align		4
        /*0004*/ 	.word	index@(luce_one)
        /*0008*/ 	.word	0x00000030
	.section	.text.luce_one,"ax",@progbits
.text.luce_one:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @P1  BRA `(.L_cold) ;
.L_top:
        /*0020*/                   LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E R6, desc[UR4][R2.64+0x8] ;
.L_inner:
        /*0040*/                   IDP.4A.S8.S8 R7, R5, R6, R7 ;
        /*0050*/                   IDP.4A.S8.S8 R7, R4, R6, R7 ;
        /*0060*/              @!P0 BRA `(.L_inner) ;
        /*0070*/                   FFMA R8, R7, R9, R8 ;
        /*0080*/               @P2 BRA `(.L_top) ;
        /*0090*/                   EXIT ;
.L_cold:
        /*00a0*/                   BRA `(.L_top) ;
.nv.shared.luce_one:
	.zero		1088
"""


def test_a_listing_of_nvdisasm() -> None:
    one = code.parse_nvidia(LISTING)["luce_one"]
    assert (one.registers, one.shared, len(one.instructions)) == (48, 1088, 11)
    assert sorted(map(sorted, one.loops)) == [[2, 3, 4, 5, 6, 7, 8], [4, 5, 6]]
    assert code.hot_loop(one) == frozenset({4, 5, 6})
    assert code.macs(one.inside(code.hot_loop(one)), 32) == 2 * 32 * 4


def test_natural_loops() -> None:
    # 0 -> 1 -> 2 -> 1 or 3; 3 -> 0 or end; 4 is reached by nothing
    assert sorted(map(sorted, code.natural_loops(5, {2: (1, True), 3: (0, True)}))) == [[0, 1, 2, 3], [1, 2]]
    # a branch backwards into code that is also entered elsewhere is no loop of its own
    assert code.natural_loops(4, {0: (2, True), 2: (1, True), 3: (None, False)}) == []
    assert code.natural_loops(3, {}) == []


LOAD = "LDG.E R4, desc[UR4][R2.64]"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([LOAD, "IADD3 R4, R4, R4, RZ"], 1 + 100),
        ([LOAD, "LDG.E R5, desc[UR4][R2.64]", "IADD3 R4, R4, R5, RZ"], 2 + 100),
        ([LOAD, "IADD3 R4, R4, R4, RZ", "LDG.E R5, desc[UR4][R2.64]", "IADD3 R4, R4, R5, RZ"], 2 * (1 + 100)),
        ([LOAD, *["FADD R9, R8, R8"] * 40, "IADD3 R4, R4, R4, RZ"], 1 + 100),  # part of the latency is worked away
        ([LOAD, *["FADD R9, R8, R8"] * 200, "IADD3 R4, R4, R4, RZ"], 202),
        (["LDG.E.128 R4, desc[UR4][R2.64]", "IADD3 R9, R7, R7, RZ"], 1 + 100),
        ([LOAD, "IADD3 R9, R8, R8, RZ"], 2),
        (["LDGSTS.E [R3], desc[UR4][R2.64]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x0"], 2 + 100),
    ],
)
def test_a_lone_wave_on_nvidia(lines: list[str], wanted: float) -> None:
    assert code.wave_ns(lines, "nvidia", 1, 100) == wanted


def test_copies_sent_ahead() -> None:
    """With two groups still out a turn waits for what was sent two turns before."""
    turn = ["LDGSTS.E [R3], desc[UR4][R2.64]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x2", "FADD R9, R8, R8"]
    assert code.wave_ns(turn, "nvidia", 1, 90, passes=31) == pytest.approx(90 / 3, abs=4)
    assert code.wave_ns(turn, "nvidia", 1, 9, passes=31) == 4


def test_a_lone_wave_on_amd() -> None:
    load, work = "global_load_b128 v[0:3], v4, s[0:1]", "v_add_nc_u32 v0, v0, v1"
    assert code.wave_ns([load, work, "s_wait_loadcnt 0x0"], "rdna", 1, 100) == 1 + 100
    assert code.wave_ns([load, load, "s_wait_loadcnt 0x1", work], "rdna", 1, 100) == 1 + 100 + 1
    assert code.wave_ns([load, load, "s_wait_loadcnt 0x2", work], "rdna", 1, 100) == 4
    assert code.wave_ns([load, "s_waitcnt vmcnt(0) lgkmcnt(0)"], "gcn", 1, 100) == 1 + 100
    assert code.wave_ns([load, "s_wait_loadcnt_dscnt 0x5"], "rdna", 1, 100) == 1 + 100
    assert code.wave_ns([load, "s_wait_loadcnt_dscnt 0x105"], "rdna", 1, 100) == 2


def test_units() -> None:
    found = code.occupied(
        ["v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9]", "v_exp_f32 v0, v0", "s_wait_loadcnt 0x0", "s_add_u32 s0"], "rdna"
    )
    assert found == {"issue": 3, "vector": 8, "special": 4, "scalar": 1}
    assert code.occupied(["FFMA R0", "LOP3.LUT R1", "@P0 BRA `(.L)"], "nvidia")["integer"] >= 2
