"""The hot loop in machine code of real kernels, from which most lines are omitted and none is changed."""

from dataclasses import replace

import pytest

from iocourse.gpu.hot_loop import hot_loop, loops

# The forward pass, causal, for sm_90. Waits that are not over at the first look stand behind the last EXIT.
FORWARD = """
forward_kernel:
.text.forward_kernel:
        /*1790*/              @!P0 BRA `(.L_x_0) ;
.L_x_3:
        /*1bc0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR25+0xc000], R20 ;
        /*1be0*/              @!P0 BRA `(.L_x_1) ;
.L_x_8:
        /*1c50*/                   HGMMA.64x64x16.F32.BF16 R56, gdesc[UR16], RZ, !UPT ;
        /*1d60*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*1fa0*/                   MUFU.EX2 R152, R156 ;
        /*3090*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*3a60*/                   HGMMA.64x64x16.F32.BF16 R88, R180, gdesc[UR16].tnspB, R88, gsb0 ;
        /*3af0*/                   @UP2 UTMALDG.4D [UR16], [UR14] ;
        /*3b50*/              @!P0 BRA `(.L_x_3) ;
.L_x_0:
        /*4690*/               @P0 BRA `(.L_x_4) ;
.L_x_7:
        /*49c0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR13+0xc000], R198 ;
        /*49e0*/              @!P0 BRA `(.L_x_5) ;
.L_x_10:
        /*4a40*/                   HGMMA.64x64x16.F32.BF16 R56, gdesc[UR8], RZ, !UPT ;
        /*4c80*/                   FSEL R157, R56, -INF , !P5 ;
        /*4cf0*/                   ISETP.GT.AND P4, PT, R56, UR34, PT ;
        /*6260*/                   MUFU.EX2 R152, R152 ;
        /*73d0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*7cf0*/                   HGMMA.64x64x16.F32.BF16 R88, R180, gdesc[UR8].tnspB, R88, gsb0 ;
        /*7e00*/                   @UP2 UTMALDG.4D [UR8], [UR30] ;
        /*7e70*/              @!P0 BRA `(.L_x_7) ;
.L_x_4:
        /*a620*/                   EXIT ;
.L_x_1:
        /*a630*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR25+0xc000], R20 ;
        /*a640*/              @!P0 BRA `(.L_x_1) ;
        /*a650*/                   BRA `(.L_x_8) ;
.L_x_5:
        /*a690*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR13+0xc000], R198 ;
        /*a6a0*/              @!P0 BRA `(.L_x_5) ;
        /*a6b0*/                   BRA `(.L_x_10) ;
.L_x_12:
        /*a6f0*/                   BRA `(.L_x_12);
.L_x_13:
"""
# For sm_80: mma, and loops that are left by what is written as a call; the second is reached by it alone.
AMPERE = """
.L_x_1:
        /*1a40*/                   DEPBAR.LE SB0, 0x2 ;
        /*1a50*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*1b30*/                   LDSM.16.M88.4 R56, [R3] ;
        /*1f20*/                   HMMA.16816.F32.BF16 R112, R204.reuse, R212, RZ ;
        /*3980*/                   MUFU.EX2 R19, R19 ;
        /*39a0*/                   HMMA.16816.F32.BF16 R36, R84, R148, R36 ;
        /*41f0*/                   LDGSTS.E.BYPASS.128 [R27+0x4000], [R56.64], !P2 ;
        /*4310*/                   LDGDEPBAR ;
        /*4420*/               @P0 CALL.REL.NOINC `(.L_x_0) ;
        /*4430*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*4440*/                   S2R R0, SR_TID.X ;
.L_x_3:
        /*55b0*/                   DEPBAR.LE SB0, 0x2 ;
        /*5780*/                   HMMA.16816.F32.BF16 R140, R192, R16, RZ ;
        /*57c0*/                   HMMA.16816.F32.BF16 R160, R192.reuse, R32, RZ ;
        /*99e0*/               @P0 CALL.REL.NOINC `(.L_x_2) ;
        /*99f0*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*bdc0*/                   EXIT ;
"""
# Slices of d: two loops in one, the second with more products; the last loop has none.
SLICES = """
.L_x_5:
        /*1630*/                   SHF.R.U32.HI R28, RZ, 0x3, R0 ;
        /*23d0*/              @!P5 BRA `(.L_x_1) ;
.L_x_2:
        /*2860*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24 ;
        /*2c70*/              @!P4 BRA `(.L_x_2) ;
.L_x_1:
        /*5b80*/              @!P5 BRA `(.L_x_3) ;
.L_x_4:
        /*68e0*/                   HGMMA.64x64x16.F32.BF16 R24, R84, gdesc[UR8].tnspB, R24 ;
        /*6930*/                   HGMMA.64x64x16.F32.BF16 R24, R80, gdesc[UR8].tnspB, R24 ;
        /*73f0*/              @!P4 BRA `(.L_x_4) ;
.L_x_3:
        /*7480*/              @!P4 BRA `(.L_x_5) ;
.L_x_7:
        /*7620*/               @P0 STG.E.128 desc[UR16][R20.64], RZ ;
        /*7640*/              @!P0 BRA `(.L_x_7) ;
        /*7ba0*/                   EXIT ;
"""
# In float32, on the ordinary cores.
SINGLE = """
.L_x_1:
        /*1220*/                   LDG.E.128 R28, desc[UR26][R28.64] ;
        /*1290*/                   LDS.128 R12, [R80] ;
        /*1880*/                   FFMA R8, R28.reuse, R32, R25 ;
        /*6700*/              @!P0 BRA `(.L_x_1) ;
        /*da70*/                   EXIT ;
"""


def test_the_loop_without_a_mask_is_the_hot_one():
    plain, masked = loops(FORWARD)
    assert (plain.instructions, masked.instructions) == (9, 10)
    assert hot_loop(FORWARD) == plain
    assert (plain.wgmma, plain.tensor, plain.mma, plain.tcgen05) == (2, 2, 0, 0)
    assert (plain.special, plain.barriers, plain.tile_loads, plain.spills) == (1, 1, 1, 0)


def test_waits_exponentials_and_whether_each_product_is_waited_for():
    plain = hot_loop(FORWARD)
    assert (plain.waits, plain.exponentials, plain.serialised) == (1, 1, False)
    product = "R88, R180, gdesc[UR16].tnspB, R88, gsb0 ;\n"
    each = FORWARD.replace(product, product + "        /*3a70*/  WARPGROUP.DEPBAR.LE gsb0, 0x0 ;\n")
    assert (hot_loop(each).waits, hot_loop(each).serialised) == (2, True)
    assert hot_loop(FORWARD.replace("MUFU.EX2", "MUFU.RCP")).exponentials == 0
    assert hot_loop(AMPERE).waits == 0 and not hot_loop(AMPERE).serialised  # DEPBAR.LE waits for copies


def test_stall_clocks_are_in_the_second_word_of_an_instruction():
    """As printed with encodings; the fourth hexadecimal digit from the left pair on holds bits 41 to 44."""
    lines = """
.L_x_1:
        /*1880*/                   FFMA R8, R28.reuse, R32, R25 ;    /* 0x000000201c087223 */
                                                                     /* 0x004fe20000010819 */
        /*6700*/              @!P0 BRA `(.L_x_1) ;                   /* 0xfffffff000208947 */
                                                                     /* 0x000fea000383ffff */
        /*da70*/                   EXIT ;                            /* 0x000000000000794d */
                                                                     /* 0x000fea0003800000 */
"""
    assert hot_loop(lines).stall_clocks == 1 + 5
    assert hot_loop(SINGLE).stall_clocks == 0  # printed without


def test_waiting_behind_the_end_belongs_to_no_loop():
    """Its branch back leads into the loop, past the head: a second way in, and no loop."""
    shorter = FORWARD[: FORWARD.index(".L_x_1:")] + "\n.L_x_1:\n.L_x_5:\n"
    assert loops(shorter) == loops(FORWARD)


def test_code_that_is_entered_past_its_head_is_no_loop():
    assert loops(FORWARD.replace("@!P0 BRA `(.L_x_0)", "@!P0 BRA `(.L_x_8)")) == loops(FORWARD)[1:]


def test_a_call_can_be_the_way_out_of_a_loop():
    plain, masked = loops(AMPERE)
    assert (plain.instructions, plain.mma, plain.wgmma, plain.shared_loads) == (10, 2, 0, 1)
    assert plain.global_loads == 1 and plain.barriers == 1  # LDGDEPBAR and DEPBAR are neither
    assert hot_loop(AMPERE) == masked  # of these lines the second loop has fewer


def test_the_innermost_loop_with_most_products_is_the_hot_one():
    scores, averages = loops(SLICES)
    assert (scores.wgmma, averages.wgmma) == (1, 2)
    assert hot_loop(SLICES) == averages
    single = SLICES.replace("@P0 STG.E.128 desc[UR16][R20.64], RZ", "FFMA R8, R28, R32, R25")
    assert loops(single) == [scores, averages]  # float32 does not count if there are tensor-core products


def test_spills_in_the_loop_are_counted_apart_from_others():
    store, load = "        /*6a00*/  STL [R1+0x24], R4 ;\n", "        /*6a10*/  @P0 LDL.LU R20, [R1] ;\n"
    outside, inside = SLICES.split(".L_x_3:\n")[0], ".L_x_3:\n" + SLICES.split(".L_x_3:\n")[1]
    assert hot_loop(outside + inside + store + load).spills == 0
    within = outside.replace(".L_x_4:\n", ".L_x_4:\n" + store + load) + inside
    assert (hot_loop(within).spills, hot_loop(within).instructions) == (2, hot_loop(SLICES).instructions + 2)


def test_without_tensor_cores_float32_counts():
    found = hot_loop(SINGLE)
    assert (found.instructions, found.fma, found.tensor) == (4, 1, 0)
    assert found.global_loads == found.shared_loads == 1
    assert hot_loop(SINGLE.replace("FFMA ", "FFMA2 ")).fma == 1


@pytest.mark.parametrize("name", ["UTCHMMA", "UTCOMMA"])
def test_products_of_sm_100(name):
    assert hot_loop(SINGLE.replace("FFMA ", f"{name} ")).tcgen05 == 1


@pytest.mark.parametrize(
    "sass", ["", ".L_x_0:\n", SINGLE.replace("FFMA", "IMAD"), SINGLE.replace("BRA", "NOP")]
)
def test_no_loop_that_multiplies(sass):
    assert loops(sass) == [] and hot_loop(sass) is None


# ---------------------------------------------------------------------- types of products
@pytest.mark.parametrize(
    ("name", "warps", "types", "multiply_adds"),
    [
        ("HGMMA.64x64x16.F32", 4, ("float16", "float32"), 64 * 64 * 16),
        ("HGMMA.64x128x16.F32.BF16", 8, ("bfloat16", "float32"), 2 * 64 * 128 * 16),
        ("HGMMA.64x64x16.F16", 4, ("float16", "float16"), 64 * 64 * 16),
        ("HGMMA.64x64x8.F32.TF32", 4, ("tf32", "float32"), 64 * 64 * 8),
        ("QGMMA.64x64x32.F32.E5M2.E5M2", 4, ("float8", "float32"), 64 * 64 * 32),
        ("HMMA.16816.F32", 4, ("float16", "float32"), 4 * 16 * 8 * 16),
        ("HMMA.1688.F32.TF32", 1, ("tf32", "float32"), 16 * 8 * 8),
    ],
)
def test_types_of_a_product_are_in_its_name(name, warps, types, multiply_adds):
    found = hot_loop(FORWARD.replace("HGMMA.64x64x16.F32.BF16", name))
    assert found.products == {name: 2}
    assert found.multiply_adds(warps) == {types: 2 * multiply_adds}


def test_every_instruction_has_a_name():
    found = hot_loop(FORWARD)
    assert sum(found.opcodes.values()) == found.instructions
    assert (found.named("MUFU"), found.named("HGMMA", "MUFU"), found.named("FSETP")) == (1, 3, 0)
    assert hot_loop(SINGLE).products == hot_loop(SINGLE).multiply_adds(4) == {}
    assert hot_loop(AMPERE).multiply_adds(4) == {("bfloat16", "float32"): 2 * 4 * 16 * 8 * 16}


def test_without_names_there_are_no_products():
    """As in a record."""
    found = replace(hot_loop(FORWARD), opcodes=None)
    assert found.products == {} and found == hot_loop(FORWARD)
