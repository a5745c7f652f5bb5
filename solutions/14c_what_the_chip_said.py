# %% [markdown]
# # 14c What the chip said
#
# In lessons 11 to 14b, closed forms counted the bytes that programs request, and you predicted times from bytes. This lesson compares these predictions with records of an NVIDIA H200. One of them holds to the byte, and others are refuted.
#
# **What you will learn**
#
# - to predict the bytes that DRAM delivers from the order of the programs and the size of the L2 cache;
# - to find the hardware counter that equals the closed form;
# - to compute the bytes, the arithmetic intensity and the minimum time of a forward pass, a backward pass and a decode step;
# - to tell where a count of bytes predicts a time and where it does not.
# <!-- "records of an NVIDIA H200" if all(device(name)["name"] == "NVIDIA H200" for name in ("profile", "decode", "attention", "varlen", "sparse", "sparse-lines", "small-cache", "tune", "roofs")) -->
#
# **Prerequisites**: lessons [11b](11b_gpu_tile_sizes.ipynb), 12, 13 and [14b](14b_decode_and_varlen.ipynb); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from collections import OrderedDict
from itertools import chain, repeat, zip_longest

import numpy as np

from iocourse import costs
from iocourse.costs import kernels as forms
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS

# %% [markdown]
# ## 14.16 Programs, L2 and DRAM
#
# | memory | on an H200 | used by |
# | --- | --- | --- |
# | registers and shared memory | 256 KB and 228 KB in each of 132 SMs (227 KB for one program, because CUDA reserves 1 KB) | the programs on one SM |
# | L2 cache | 60 MiB | all programs |
# | DRAM | 141 GB, at 4,800 GB/s | all programs |
#
# A closed form such as (11.1) counts the words that programs load and store, which are words *between programs and L2*. Words that are not in L2 are read from DRAM. The two-level model holds at both levels. Its $M$ is the memory of one program at the first level and the size of L2 at the second.
#
# **Predict** (compute). One head with $N = 8192$ and $d = 64$ in 16 bits, and 64 queries per program. How many MiB do the programs read by (11.1)? How many MiB must DRAM deliver at least?
# <!-- h200 = CHIPS[90] -->
# <!-- 256, 228, 4,800 = h200.registers * 4 / 2**10, h200.shared_bytes_per_sm / 2**10, h200.gbytes_per_s -->
# <!-- 227, 1 = h200.shared_bytes / 2**10, h200.reserved_bytes / 2**10 -->
# <!-- 132, 60 = device("profile")["multiprocessors"], device("profile")["l2_bytes"] / 2**20 -->
# <!-- 141 from https://www.nvidia.com/en-us/data-center/h200/ -->

# %% tags=["predict"]
predict("14.16", programs=257, dram=3)  #> predict("14.16", programs=..., dram=...)

# %%
requested = 2 * costs.flash2(8192, 64, Br=64, Bc=64).read / 2**20  # MiB
once = 2 * 3 * 8192 * 64 / 2**20
measured("14.16", programs=requested, dram=once)
explore.bars({"requested by the programs": requested, "L2 cache of an H200": 60,
              "each input once": once}, unit="MiB", log=True,
             title="Reads of one head, N = 8,192, d = 64, 16 bits")

# %% [markdown]
# <details><summary>Requested and delivered bytes</summary>
#
# 257 MiB and 3 MiB. Each of 128 programs reads all of $K$ and $V$, 2 MiB, and together they read $Q$ once. DRAM must deliver $Q$, $K$ and $V$ once.
# <!-- 257, 3, 2 = 2 * costs.flash2(8192, 64, Br=64, Bc=64).read / 2**20, 2 * 3 * 8192 * 64 / 2**20, 2 * 2 * 8192 * 64 / 2**20 -->
# <!-- 128 = 8192 / 64 -->
#
# </details>
#
# Whether DRAM delivers the minimum or all requests depends on *when* the programs read the same words. So we list the reads in their order, for 8 heads of 512 queries with tiles of 64. The unit is one row of 64 words, which in 16 bits is one cache line of 128 bytes.
# <!-- 128 = 2 * 64 -->

# %% tags=["listing"]
H, N, d, BM = 8, 512, 64, 64
TILES = N // BM  # programs per head


def program(head, tile):
    """Rows that one program reads: its queries, then one list per iteration."""
    def rows(array, t):
        return [(array, head, row) for row in range(t * BM, (t + 1) * BM)]

    yield rows("Q", tile)
    for t in range(TILES):
        yield rows("K", t) + rows("V", t)


def side_by_side(programs, at_once, late=0):
    """All reads in order. `at_once` programs run together, one iteration of each in turn;
    each starts `late` iterations after the previous one."""
    for first in range(0, len(programs), at_once):
        wave = (chain(repeat([], late * n), program(*one))
                for n, one in enumerate(programs[first:first + at_once]))
        for iteration in zip_longest(*wave, fillvalue=[]):
            yield from chain(*iteration)


together = [(head, tile) for head in range(H) for tile in range(TILES)]
reads = sum(1 for _ in side_by_side(together, at_once=4))
print(f"{len(together)} programs read {reads:,} rows = {reads * d:,} words; "
      f"(11.1): {H * costs.flash2(N, d, Br=BM, Bc=BM).read:,}, once: {H * 3 * N * d:,}")
explore.program_grid(H, TILES, 1, 1, order=together,
                     title="64 programs: one row per head, one column per query tile")

# %% [markdown]
# The 64 programs read 4,456,448 words, as (11.1) states; the inputs have 786,432. In the figure all programs of one head are launched one after another, as in section 11.10. $n_p$ of them run at the same time. Stores are left out, because $O$ is written once at both levels.
# <!-- 64 as output -->
#
# ## 14.17 Program order and the L2 cache
#
# The emulated cache holds a fixed number of rows. A read of a row in the cache is a *hit*. Any other read is a *miss*: the row is fetched from DRAM, and if the cache is full, the *least recently used* row is evicted (LRU).

# %%
def fetched(reads, capacity):
    """Number of rows fetched from DRAM through an LRU cache of `capacity` rows."""
    cache, misses = OrderedDict(), 0  # from the least to the most recently used row
    for row in reads:
        if row in cache:
            cache.move_to_end(row)
        else:
            misses += 1
            cache[row] = None
            if len(cache) > capacity:
                cache.popitem(last=False)
    return misses


def deliveries(programs, at_once, capacity, late=0):
    """Deliveries of K and V by DRAM. Q is delivered once in any case."""
    return (fetched(side_by_side(programs, at_once, late), capacity) / (H * N) - 1) / 2


# %% [markdown]
# The same 64 programs can be numbered in two orders. *Together*: all tiles of one head, then the next head. *Scattered*: the first tile of every head, then the second tile of every head. Both orders have the same closed form.
# <!-- 64 as input -->
#
# **Predict** (guess). Four programs run at once, and the cache holds 2,048 rows, which is all of $K$ and $V$ of two heads. The programs request each word of $K$ and $V$ 8 times. How often does DRAM deliver it in each order?
# <!-- delivered = lambda rows: costs.flash2(512, 64, Br=rows, Bc=64).reads["K"] / (512 * 64) -->
# <!-- 8 = delivered(64) -->

# %% tags=["predict"]
predict("14.17", together=1, scattered=4)  #> predict("14.17", together=..., scattered=...)

# %%
scattered = [(head, tile) for tile in range(TILES) for head in range(H)]
orders = {"together": together, "scattered": scattered}
measured("14.17", **{name: deliveries(order, 4, capacity=2048)
                     for name, order in orders.items()})

# %% [markdown]
# <details><summary>Deliveries in both orders</summary>
#
# Once and 8 times. Together, the first program of a head fetches $K$ and $V$, and the other programs find them in the cache. Scattered, the programs of seven other heads run before the next program of the same head, and their rows evict its $K$ and $V$. So the order of its programs decides whether one kernel has the compulsory DRAM traffic or that of its closed form.
# <!-- 8 as input -->
#
# </details>
#
# The figure shows all cache sizes:

# %%
sizes = [2**k for k in range(5, 15)]
explore.curve({name: [(size, deliveries(order, 4, size)) for size in sizes]
               for name, order in orders.items()},
              title="How often DRAM delivers K and V: one closed form, two orders",
              xlabel="capacity of the cache (rows)", ylabel="deliveries of K and V",
              notes={"together": "2 from 128 rows on, 1 from 2,048 on",
                     "scattered": "8 up to 8,192 rows, then 1"})


# %% [markdown]
# (A square can hide a dot where the orders agree.) In the order *together* there are three steps. With 64 rows the cache has no effect, and DRAM delivers $K$ and $V$ for each of the 8 programs of a head. From 128 rows on, one tile of $K$ and one of $V$, it serves the programs that run at the same time: 2 deliveries. With $K$ and $V$ of one head (1,024 rows) and some rows more, it also serves later programs: 1 delivery. The order *scattered* needs all heads, 8,192 rows and some more.
# <!-- 8 = 512 / 64 -->
#
# Programs run *in step* if they are in the same iteration at the same time. Then $n_p$ programs of one head fetch $K$ and $V$ once together, as one program with $n_pB_M$ queries does. With $T_r = \lceil N/B_M \rceil$ programs per head, DRAM delivers
#
# $$ W_{\text{DRAM}} = Nd + 2Nd \cdot r, \qquad r = \begin{cases} 1 & \text{if the keys and values of a head are kept in L2,} \\ \lceil T_r/n_p \rceil & \text{if a tile of each is,} \\ T_r & \text{otherwise.} \end{cases} \tag{14.6} $$
# <!-- (14.6) W_DRAM = costs.flash2(N, d, Br=Br, Bc=1).read with r = costs.ceil_div(N, Br) -->
# <!-- (14.6) r = costs.flash2(N, d, Br=N, Bc=1).reads["K"] / (N * d) -->
# <!-- (14.6) r = costs.flash2(N, d, Br=np * BM, Bc=1).reads["K"] / (N * d) with Tr = costs.ceil_div(N, BM) -->
# <!-- (14.6) r = costs.flash2(N, d, Br=BM, Bc=1).reads["K"] / (N * d) with Tr = costs.ceil_div(N, BM) -->
#
# On a chip, nothing keeps programs in step. In the second loop each program starts one iteration after the previous one:

# %%
for at_once in (1, 2, 4, 8):
    print(f"{at_once} at once, 256 rows: r = {deliveries(together, at_once, capacity=256):g}")
for size in (256, 512, 1280):
    late = deliveries(together, 4, capacity=size, late=1)
    print(f"4 at once, each one iteration late, {size:5,} rows: r = {late:g}")


# %% [markdown]
# In step, $r = \lceil 8/n_p \rceil$. One iteration late, 256 rows give $r = 7.75$ instead of 2, because the cache must span the distance between the first program and the last. With 1,280 rows, more than $K$ and $V$ of a head, it has no effect whether programs run in step. An H200 is in this case. $K$ and $V$ of the head of section 14.16 are 2 MiB. With two programs per SM, the 264 programs that run at once belong to three or four heads with at most 8 MiB, and L2 has 60 MiB. In the order *scattered* over 32 heads they would need 64 MiB.
# <!-- at_once = 2 * device("profile")["multiprocessors"] -->
# <!-- 264 = at_once -->
# <!-- "belong to three or four heads" if {len({(first + n) // 128 for n in range(at_once)}) for first in range(0, 32 * 128 - at_once, at_once)} <= {3, 4} -->
# <!-- 2, 8, 64 = (heads * 2 * 8192 * 64 * 2 / 2**20 for heads in (1, 4, 32)) -->
# <!-- 60 = device("profile")["l2_bytes"] / 2**20 -->
#
# The L2 cache of a chip differs from this model. It fetches sectors of 32 bytes, holds written data too, and its rule of eviction is not published, as far as we know. So the prediction needs a measurement, which exists for the order *together* only.
# <!-- 32 as definition -->
#
# ## 14.18 Counters of five launches
#
# A GPU counts its own traffic, and NVIDIA's profiler Nsight Compute (`ncu`) reads the counters:
#
# | bytes or sectors read | counter |
# | --- | --- |
# | by the SMs | `l1tex__m_xbar2l1tex_read_bytes.sum` |
# | looked up in L2, sectors of 32 bytes | `lts__t_sectors_srcunit_tex_op_read.sum` |
# | by the LRC from L2 | `lrc__lts2lrc_sectors_op_read.sum` |
# | by the SMs from the LRC | `lrc__xbar2gpc_sectors_op_read.sum` |
# | from DRAM | `dram__bytes_read.sum` |
#
# Between the SMs and L2 an H200 has a *request coalescer* (LRC), which merges reads of the same words by several SMs. The record `profile` has five launches, and `ncu` emptied the caches before each kernel. (A record describes the kernels of its commit, which may have changed since.)
#
# **Predict** (guess). The first launch is a forward pass with 16 heads, $N = 4096$, $d = 64$ and 128 queries per program. Its closed form reads 520 MiB, and its inputs have 24 MiB. How many MiB do the SMs read, are looked up in L2, and are read from DRAM?
# <!-- 32 as definition -->
# <!-- launches = rows("profile", "runs") -->
# <!-- "five launches" if len(launches) == 5 -->
# <!-- 520, 24 = launches[0]["bytes"]["closed_form"]["read"] / 2**20, launches[0]["bytes"]["compulsory"]["read"] / 2**20 -->
# <!-- 128 = launches[0]["tiles"]["forward"][0] -->

# %% tags=["predict"]
predict("14.18", SMs=520, L2=400, DRAM=24)  #> predict("14.18", SMs=..., L2=..., DRAM=...)

# %%
profile = load_record("profile")
print(record_source(profile))
print(f"{'closed form':>41}     SMs - form  L2/form  LRC in/out  DRAM/inputs")
for run in profile["runs"]:
    what, N, d = (run["question"][name] for name in ("what", "N", "d"))
    form, l2, dram, once = (run["bytes"][level]["read"]
                            for level in ("closed_form", "l2", "dram", "compulsory"))
    sms, into, out = (run["counters"][name] for name in (
        "l1tex__m_xbar2l1tex_read_bytes.sum", "lrc__lts2lrc_sectors_op_read.sum",
        "lrc__xbar2gpc_sectors_op_read.sum"))
    print(f"{what:18} N={N:6,} d={d:3} {form:12,} {sms - form:+8,} bytes {l2 / form:8.3f} "
          f"{into / out:11.3f} {dram / once:12.4f}")
    if run is profile["runs"][0]:
        measured("14.18", SMs=sms / 2**20, L2=l2 / 2**20, DRAM=dram / 2**20)

# %% [markdown]
# <details><summary>Counters and closed forms</summary>
#
# 520, 331 and 24 MiB. The SMs read the closed form *to the byte* in three of five launches. The others differ by +0.005 % (decode) and +0.13 % (slices). Use this counter to test a closed form. L2 looked up only 0.44 to 0.82 of the closed form, because the LRC merges requests. Its two counters have the same ratio. In decode the ratio is 0.999, because programs share only queries. In the forward passes with complete rows, DRAM delivered each input once, within 0.12 %. This is (14.6) with $r = 1$.
# <!-- first = lambda run: run["counters"]["l1tex__m_xbar2l1tex_read_bytes.sum"] -->
# <!-- form = lambda run: run["bytes"]["closed_form"]["read"] -->
# <!-- looked = lambda run: run["bytes"]["l2"]["read"] / form(run) -->
# <!-- shared = [looked(run) for run in launches if run["question"]["what"] != "decode"] -->
# <!-- 520, 331, 24 = first(launches[0]) / 2**20, launches[0]["bytes"]["l2"]["read"] / 2**20, launches[0]["bytes"]["dram"]["read"] / 2**20 -->
# <!-- "in three of five launches" if sum(first(run) == form(run) for run in launches) == 3 -->
# <!-- 0.005, 0.13 = 100 * (first(launches[3]) / form(launches[3]) - 1), 100 * (first(launches[4]) / form(launches[4]) - 1) -->
# <!-- 0.44, 0.82, 0.999 = min(shared), max(shared), looked(launches[3]) -->
# <!-- "because the LRC merges requests" if all(abs(run["counters"]["lrc__lts2lrc_sectors_op_read.sum"] / run["bytes"]["l2"]["read"] - 1) < 0.003 and abs(run["counters"]["lrc__xbar2gpc_sectors_op_read.sum"] / first(run) - 1) < 0.002 for run in launches) -->
# <!-- merged = lambda run: run["counters"]["lrc__lts2lrc_sectors_op_read.sum"] / run["counters"]["lrc__xbar2gpc_sectors_op_read.sum"] -->
# <!-- "Its two counters have the same ratio" if all(abs(merged(run) - looked(run)) < 0.001 for run in launches) -->
# <!-- "because programs share only queries" if form(launches[3]) - launches[3]["bytes"]["l2"]["read"] < launches[3]["question"]["parts"] * launches[3]["question"]["heads"] * 2 * launches[3]["question"]["d"] -->
# <!-- once = lambda run: run["bytes"]["dram"]["read"] / run["bytes"]["compulsory"]["read"] -->
# <!-- 0.12 = 100 * (max(once(run) for run in launches if run["question"]["what"] == "forward") - 1) -->
#
# </details>
#
# The record has three exceptions. In decode the SMs read 12,288 bytes more than the closed form. The merge kernel loads single log-sum-exps, 16 bytes apart, and the hardware loads sectors of 32 bytes, so each of its 32 programs reads 512 bytes for 32 words. In the kernel with slices, 874,624 bytes are not explained. The third exception is DRAM in the fused backward pass, 1.61 times the inputs. It is a sum of closed forms:
# <!-- 12,288, 874,624, 1.61 = first(launches[3]) - form(launches[3]), first(launches[4]) - form(launches[4]), once(launches[2]) -->
# <!-- 32 = launches[3]["question"]["heads"] -->
# <!-- 16 = 4 * launches[3]["question"]["heads"] / launches[3]["question"]["kv_heads"] -->
# <!-- 512 = 4 * 32 + (first(launches[3]) - form(launches[3])) / launches[3]["question"]["heads"] -->
# <!-- "each of its 32 programs reads 512 bytes for 32 words" if 32 * (512 - 32 * 4) == first(launches[3]) - form(launches[3]) and launches[3]["question"]["parts"] == 32 and launches[3]["question"]["heads"] == 4 * launches[3]["question"]["kv_heads"] -->

# %%
array, row = 2 * 8 * 4096 * 64, 4 * 8 * 4096  # bytes of Q (16 bits), of one float32 per row
causes = {"Q, K, V, O, dO and L, once each": 5 * array + row,
          "the second kernel reads dO again": array,
          "and two statistics per row": 2 * row,
          "and lines of dQ (float32), to add to them": 2 * array}
for cause, size in causes.items():
    print(f"{cause:42} {size:12,} bytes")
dram = profile["runs"][2]["bytes"]["dram"]["read"]
print(f"{'sum':42} {sum(causes.values()):12,} bytes, DRAM counter {dram:,}")

# %% [markdown]
# The sum is 0.09 % below the counter. Atomic additions are executed in L2, so L2 must first fetch the lines of $dQ$, which the first kernel has set to 0. `ncu` emptied L2 between the two kernels. In normal use some of these lines may still be in L2; this was not measured.
# <!-- 0.09 = 100 * (launches[2]["bytes"]["dram"]["read"] / (5 * 2 * 8 * 4096 * 64 + 4 * 8 * 4096 + 3 * 2 * 8 * 4096 * 64 + 2 * 4 * 8 * 4096) - 1) -->
# <!-- "which the first kernel has set to 0" if launches[2]["kernels"][0]["l2"]["written"] == 4 * 8 * 4096 * 64 + 2 * 4 * 8 * 4096 -->
#
# `iocourse profile --recorded` prints these counters for each launch. On a machine with a GPU and `ncu`, `python -m tools.bench.counters forward` in a checkout of iocourse counts one launch. The DRAM counter of *written* bytes is not usable. Results can still be in L2 when the kernel ends, and in decode it shows 2,403,584 bytes for 536,704.
# <!-- 2,403,584, 536,704 = launches[3]["bytes"]["dram"]["written"], launches[3]["bytes"]["closed_form"]["written"] -->
#
# ## 14.19 A decode step: bytes and minimum time
#
# A decode step has one query per head (lesson 14b). In one step, each word of $K$ and $V$ is requested once, so no cache can help, and the compulsory words are the words at both levels. For $B$ sequences, $H$ query heads, $H_{kv}$ key heads and $\beta$ bytes per word,
#
# $$ W = \underbrace{2BH_{kv}Nd}_{K,\ V} + \underbrace{2BHd}_{q,\ O}, \qquad t \ge \frac{\beta W}{\text{bandwidth}}. \tag{14.7} $$
# <!-- (14.7) W = step.reads["Q"] + step.reads["K"] + step.reads["V"] + step.writes["O"] with H = group * Hkv, step = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1) -->
# <!-- (14.7) t >= (roofline.compulsory_bytes("forward", step, beta) - 4 * B * H) / bandwidth with H = group * Hkv, step = kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), W = roofline.compulsory_bytes("forward", step, 1) - 4 * B * H -->
#
# (The log-sum-exp, one word per head, is left out.) By (14.4) the arithmetic intensity in 16 bits is one FLOP per byte for each query head that shares a key head.
#
# <!-- exercise 14A --> Compute (14.7): the bytes of a decode step and its minimum time in microseconds. A bandwidth of 1 GB/s is $10^9$ bytes per second, as in data sheets. If you are stuck after five minutes, run `hint("14A")` in a new cell.
# <!-- 1 as definition -->

# %% [raw] name="about-14A"
# title = "One token"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Which four arrays are moved, and how many words has each? Two of them have one head per query head, the other two one per key head.",
#   "K and V have B · H_kv · N · d words each; the query and the output of all heads B · H · d each. Every word moves once and has itemsize bytes.",
#   "Bytes divided by bytes per second are seconds. 1 GB/s is 10^9 bytes per second, or 1,000 bytes per microsecond.",
# # <!-- 1, 1,000 as definition -->
# ]

# %% tags=["exercise"] name="ex-14A"
def my_decode_step(B, H, H_kv, N, d, itemsize, gbytes_per_s):
    """(bytes moved, minimum microseconds) of one query per head and N keys.

    B sequences, H query heads, H_kv key heads, itemsize bytes per word.
    """
    ### BEGIN SOLUTION K and V of the key heads, a query and an output of every query head
    words = 2 * B * H_kv * N * d + 2 * B * H * d
    moved = itemsize * words
    return moved, moved / (1000 * gbytes_per_s)
    ### END SOLUTION


# %% tags=["check"] name="check-14A"
check("14A", my_decode_step)

# %% [markdown]
# ## 14.20 Heads that share keys
#
# Shared key heads reduce the words that a decode step reads (section 14.10). Those of $K$ and $V$ *per query head* are
#
# $$ \frac{2BH_{kv}Nd}{BH} = 2Nd \cdot \frac{H_{kv}}{H} . \tag{14.8} $$
# <!-- (14.8) 2 * kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1).reads["K"] / (B * H) = 2 * kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1).reads["K"] / (B * H) with H = group * Hkv -->
#
# The choices of $H_{kv}$ are called *multi-head attention* (MHA, $H_{kv} = H$), *grouped-query attention* (GQA) and *multi-query attention* (MQA, $H_{kv} = 1$). One layer of Llama 3.1 8B has $H = 32$, $H_{kv} = 8$ and $d = 128$. For 32,768 tokens in the cache and 16 bits:
# <!-- 3.1 from https://arxiv.org/abs/2407.21783 -->

# %%
LAYER = {"B": 1, "H": 32, "N": 32768, "d": 128, "itemsize": 2}
multiplying = 4 * 32 * 32768 * 128 / 989e6  # µs for all FLOPs at 989 TFLOP/s
for name, H_kv in (("MHA", 32), ("GQA", 8), ("MQA", 1)):
    step = attempt(my_decode_step, **LAYER, H_kv=H_kv, gbytes_per_s=4800)
    print(f"{name}, H_kv = {H_kv:2}: {step[0]:11,} bytes, at least {step[1]:5.1f} µs to move "
          f"them, {multiplying:.2f} µs to multiply, {32 // H_kv:2} FLOPs per byte")


# %% [markdown]
# The minimum time decreases from 111.9 µs to 28.0 and 3.5 µs, as the KV cache does. The products take 0.54 µs in each case.
# <!-- problem = lambda H_kv: kernel_costs.KernelProblem(1, 32768, 128, H=32, H_kv=H_kv) -->
# <!-- moving = lambda H_kv: (roofline.compulsory_bytes("forward", problem(H_kv), 2) - 4 * 32) / h200.gbytes_per_s / 1e3 -->
# <!-- 111.9, 28.0, 3.5 = moving(32), moving(8), moving(1) -->
# <!-- 0.54 = roofline.flops("forward", B=1, H=32, N=32768, d=128) / 32768 / h200.tensor_tflops / 1e6 -->
#
# **Predict** (compute). How many query heads must share one key head, in 16 bits, before decode is compute-bound on an H200 (989 TFLOP/s, 4,800 GB/s)?
# <!-- 989, 4,800 = h200.tensor_tflops, h200.gbytes_per_s -->

# %% tags=["predict"]
predict("14.20", heads=207)  #> predict("14.20", heads=...)

# %%
ridge = 1000 * 989 / 4800
print(f"ridge point of an H200: {ridge:.1f} FLOPs per byte")
measured("14.20", heads=int(ridge) + 1)

# %% [markdown]
# <details><summary>Heads needed</summary>
#
# 207, by (14.4). So the 32 heads of MQA are memory-bound at every length. Several new tokens at once (*speculative decoding*) are more rows of the tile: 52 tokens in groups of 4 have 208 rows.
# <!-- 207 = next(heads for heads in range(1, 1000) if heads > roofline.ridge_point(h200)) -->
# <!-- 52, 208 = math.ceil(207 / 4), 4 * math.ceil(207 / 4) -->
#
# </details>
#
# ## 14.21 The time of a decode step
#
# A copy of a large array only moves bytes, at 4,279 GB/s in the record `decode`, which is 0.89 of the data sheet. We predict that a decode step takes the time of a copy of its bytes.
# <!-- 4,279, 0.89 = load_record("decode")["copy"]["gbytes_per_s"], load_record("decode")["copy"]["gbytes_per_s"] / h200.gbytes_per_s -->
#
# **Predict** (guess). With MHA, the step of section 14.20 was recorded at 141.6 µs, for a copy time of 125.5 µs. With MQA the copy time is 3.9 µs. How many microseconds does that step take?
# <!-- own = lambda H_kv: row("decode", B=1, N=32768, H_kv=H_kv, contender="split-KV") -->
# <!-- 141.6, 125.5, 3.9 = own(32)["us"], own(32)["us"] * own(32)["share"], own(1)["us"] * own(1)["share"] -->

# %% tags=["predict"]
predict("14.21", microseconds=8)  #> predict("14.21", microseconds=...)

# %%
decode = load_record("decode")
print(record_source(decode))
steps = [row for row in decode["rows"] if row["contender"] == "split-KV"]
for row in steps[:3]:
    print(f"H_kv = {row['H_kv']:2}: {row['us']:6.1f} µs, "
          f"copy {row['us'] * row['share']:6.1f} µs, share of the copy {row['share']:.2f}")
measured("14.21", microseconds=steps[2]["us"])

# %% [markdown]
# <details><summary>More than the copy time</summary>
#
# 24.5 µs, more than six times the copy time. The share of the copy is 0.89, 0.67 and 0.16.
# <!-- 24.5 = own(1)["us"] -->
# <!-- "more than six times the copy time" if own(1)["share"] < 1 / 6 -->
# <!-- 0.89, 0.67, 0.16 = own(32)["share"], own(8)["share"], own(1)["share"] -->
#
# </details>
#
# The share depends on the size. The record has 23 shapes, from 11 to 1,028 µs. The next cell fits lines and prints the *excess*, time − copy. In "last program merges", one launch also merges.
# <!-- taken = np.array([one["us"] for one in rows("decode", contender="split-KV")]) -->
# <!-- 23, 11, 1,028 = len(taken), taken.min(), taken.max() -->

# %%
for contender in ("split-KV", "SDPA cuDNN"):
    taken, share = np.array([(row["us"], row["share"]) for row in decode["rows"]
                             if row["contender"] == contender]).T
    slope, constant = np.polyfit(taken * share, taken, 1)
    rest = taken - slope * taken * share - constant
    print(f"{contender}: time = {slope:.2f} · copy + {constant:.1f} µs, "
          f"residuals {rest.min():+.1f} to {rest.max():+.1f} µs")
print("excess in µs for N = 4,096, 8,192, 16,384, 32,768:")
for contender, B, H_kv in [*(("split-KV", B, H_kv) for B in (1, 8) for H_kv in (32, 8, 1)),
                           *(("last program merges", 1, H_kv) for H_kv in (32, 8, 1)),
                           ("SDPA cuDNN", 8, 32)]:
    excess = {row["N"]: row["us"] * (1 - row["share"]) for row in decode["rows"]
              if (row["contender"], row["B"], row["H_kv"]) == (contender, B, H_kv)}
    print(f"{contender:19} B = {B}, H_kv = {H_kv:2}:",
          " ".join(f"{excess[N]:5.1f}" for N in sorted(excess)))

# %% [markdown]
# The excess of split-KV is 10.7 to 24.7 µs and grows with $N$ in each series. Copy + 15 µs has errors of −4.3 to +9.7 µs, about 1 % of the longest step and up to 38 % of a short one. A share of the copy, from 0.04 to 0.98, is mostly this constant in another form.
#
# - With MQA and $B = 1$, the excess grows by 9.9 µs while the copy time grows by 3.4 µs. This is consistent with idle SMs: the library made at most 64 parts, for 132 SMs.
# - With $B = 1$, one launch takes 2.1 to 3.3 µs less than two with MHA, 1.0 to 3.0 µs more with GQA and 38 to 48 µs more with MQA. The record does not show why.
# - The copy is not a lower limit. The slope of cuDNN is 0.93, and its longest step takes 950 µs instead of 1,004. A copy also writes.
# <!-- copied = np.array([one["us"] * one["share"] for one in rows("decode", contender="split-KV")]) -->
# <!-- excess = taken - copied -->
# <!-- 10.7, 24.7 = min(excess), max(excess) -->
# <!-- series = lambda contender, B, H_kv: [one["us"] * (1 - one["share"]) for one in sorted(rows("decode", contender=contender, B=B, H_kv=H_kv), key=lambda one: one["N"])] -->
# <!-- "grows with $N$ in each series" if all(sorted(series("split-KV", B, H_kv)) == series("split-KV", B, H_kv) for B in (1, 8) for H_kv in (32, 8, 1)) -->
# <!-- 15 = np.polyfit(copied, taken, 1)[1] -->
# <!-- 4.3, 9.7 = 15 - min(excess), max(excess) - 15 -->
# <!-- 1, 38 = 100 * abs(excess[taken.argmax()] - 15) / max(taken), 100 * max(abs(excess - 15) / taken) -->
# <!-- 0.04, 0.98 = min(copied / taken), max(copied / taken) -->
# <!-- ends = [row("decode", contender="split-KV", B=1, H_kv=1, N=N) for N in (4096, 32768)] -->
# <!-- 9.9, 3.4 = series("split-KV", 1, 1)[-1] - series("split-KV", 1, 1)[0], ends[1]["us"] * ends[1]["share"] - ends[0]["us"] * ends[0]["share"] -->
# <!-- 64 = kernels.host.launches.enough_parts(device("decode")["multiprocessors"], 1) -->
# <!-- 132 = device("decode")["multiprocessors"] -->
# <!-- "at most 64 parts" if kernels.host.launches.enough_parts(device("decode")["multiprocessors"], 1) == 64 -->
# <!-- saved = lambda H_kv: [two - one for one, two in zip(series("last program merges", 1, H_kv), series("split-KV", 1, H_kv), strict=True)] -->
# <!-- 2.1, 3.3 = min(saved(32)), max(saved(32)) -->
# <!-- 1.0, 3.0, 38, 48 = -max(saved(8)), -min(saved(8)), -max(saved(1)), -min(saved(1)) -->
# <!-- cudnn = [(one["us"] * one["share"], one["us"]) for one in rows("decode", contender="SDPA cuDNN")] -->
# <!-- 0.93 = np.polyfit(*zip(*cudnn), 1)[0] -->
# <!-- 950, 1,004 = max(cudnn)[1], max(cudnn)[0] -->
#
# On your GPU, the next cell times the GQA step. It runs in a process where kernels are compiled; `time_of` empties L2 before each lap and takes the median.

# %% tags=["nbval-ignore-output"]
import os
import subprocess
import sys

from iocourse.gpu.timing import cuda_unavailable_reason

STEP = """
import sys
import torch
from iocourse import kernels
from iocourse.gpu.timing import time_of

B, H, H_kv, N, d = map(int, sys.argv[1:])
q, k, v = (torch.randn(B, heads, n, d, dtype=torch.float16, device="cuda")
           for heads, n in ((H, 1), (H_kv, N), (H_kv, N)))
print(1000 * time_of(lambda: kernels.decode(q, k, v)).ms)
"""


def timed_here(*sizes):
    """Microseconds of a decode step on this machine's GPU, or the reason why there are none."""
    if cuda_unavailable_reason():
        return f"{cuda_unavailable_reason()}; needed: an NVIDIA GPU and a torch built for it"
    import torch

    if torch.cuda.get_device_capability() < (8, 0):
        return "Triton uses no tensor cores on this GPU, and compiles for minutes"
    done = subprocess.run([sys.executable, "-c", STEP, *map(str, sizes)], check=False,
                          env=os.environ | {"TRITON_INTERPRET": "0"},
                          capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else done.stderr.strip()[-200:]


found = timed_here(1, 32, 8, 32768, 128)
print(f"not measured here: {found}" if isinstance(found, str) else
      f"{found:.1f} µs here, {134_234_112 / found / 1000:,.0f} GB/s; "
      f"recorded: {steps[1]['us']:.1f} µs")


# %% [markdown]
# ## 14.22 Rooflines of three passes
#
# By convention the forward pass has two products of $2N^2d$ FLOPs, the backward pass five, and exponentials are not counted. Each array is moved once:
#
# | pass, one head | FLOPs | reads | writes |
# | --- | --- | --- | --- |
# | forward | $4N^2d$ | $Q$, $K$, $V$ | $O$ |
# | backward | $10N^2d$ | $Q$, $K$, $V$, $O$, $dO$ | $dQ$, $dK$, $dV$ |
# | decode | $4Nd$ | $q$, $K$, $V$ | $O$ |
#
# A chip can move and multiply at the same time, so
#
# $$ t \ge \max\left( \frac{\text{FLOP}}{\text{peak}},\ \frac{\text{bytes}}{\text{bandwidth}} \right) . \tag{14.9} $$
# <!-- (14.9) t >= FLOP / (10**12 * roofline.attainable_tflops(roofline.arithmetic_intensity(FLOP, bytes), chip)) with chip = list(CHIPS.values())[k % len(CHIPS)], peak = 10**12 * chip.tensor_tflops, bandwidth = 10**9 * chip.gbytes_per_s -->
#
# This is the roofline (11.9) as a time. The larger term is the limit.
#
# <!-- exercise 14B --> Compute (14.9) for the three passes, without a mask. $Q$, $O$, $dO$ and $dQ$ have $H$ heads, and $K$, $V$, $dK$ and $dV$ have $H_{kv}$. Count the FLOPs of every query head. Row statistics are left out. If you are stuck after six minutes, run `hint("14B")` in a new cell.

# %% [raw] name="about-14B"
# title = "Memory-bound or compute-bound"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Compute two times per pass: the time of the products alone, and the time of the memory traffic alone. Which of the two can be hidden behind the other?",
#   "Divide the arrays of the table into those with H heads and those with H_kv. The forward pass has two of each kind, the backward pass four; decoding has the count of exercise 14A.",
#   "One microsecond is 10^6 FLOPs per TFLOP/s of the peak, and 1,000 bytes per GB/s. The minimum time is the larger of the two times, and the larger one is the limit.",
# # <!-- 1,000 as definition -->
# ]

# %% tags=["exercise"] name="ex-14B"
def my_least_time(pass_, B, H, H_kv, N, d, itemsize, tflops, gbytes_per_s):
    """(minimum microseconds, limit) of one pass: "forward", "backward" or "decode".

    tflops: 10**12 FLOPs per second; gbytes_per_s: 10**9 bytes per second.
    The limit is "memory" or "products".
    """
    ### BEGIN SOLUTION FLOPs and bytes of the pass, then the longer of two times
    if pass_ == "decode":
        flop = 4 * B * H * N * d
        moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, gbytes_per_s)
    else:
        products, arrays = {"forward": (4, 2), "backward": (10, 4)}[pass_]
        flop = products * B * H * N**2 * d
        moved = itemsize * arrays * B * (H + H_kv) * N * d
    multiplying, moving = flop / (1e6 * tflops), moved / (1e3 * gbytes_per_s)
    return max(multiplying, moving), "memory" if moving > multiplying else "products"
    ### END SOLUTION


# %% tags=["check"] name="check-14B"
check("14B", my_least_time)

# %% [markdown]
# **Predict** (compute). $H = H_{kv}$, 16 bits, an H200. From which $N$ on are the forward and the backward pass compute-bound by (14.9)? (Divide the FLOPs by the bytes first; $d$ cancels.)

# %% tags=["predict"]
predict("14.22", forward=413, backward=330)  #> predict("14.22", forward=..., backward=...)

# %%
H200 = {"itemsize": 2, "tflops": 989, "gbytes_per_s": 4800}


def first_compute_bound(least_time, pass_):
    """The smallest N at which the products are the limit."""
    return next(N for N in range(1, 2000)
                if least_time(pass_, 1, 1, 1, N, 128, **H200)[1] == "products")


measured("14.22", **{pass_: attempt(first_compute_bound, my_least_time, pass_)
                     for pass_ in ("forward", "backward")})


# %% [markdown]
# <details><summary>The first compute-bound lengths</summary>
#
# 413 and 330. The forward pass has $4N^2d$ FLOPs for $4Nd$ words of 2 bytes, $N/2$ FLOPs per byte. The backward pass has $\frac{10}{16}N$.
# <!-- intensity = lambda pass_, N: roofline.arithmetic_intensity(roofline.flops(pass_, B=1, H=1, N=N, d=128), roofline.compulsory_bytes(pass_, kernel_costs.KernelProblem(N, N, 128), 2) - 4 * N) -->
# <!-- 413, 330 = (next(N for N in range(1, 2000) if intensity(pass_, N) > roofline.ridge_point(h200)) for pass_ in ("forward", "backward")) -->
# <!-- 2 as definition -->
#
# </details>
#
# The explorer draws the roof of DRAM, the largest recorded traffic from L2, and the launches of section 14.18. A circle is the intensity between L2 and the SMs, a triangle the intensity at DRAM.

# %%
explore.kernel_explorer(90, d=64)

# %% [markdown]
# The forward pass has 63 FLOPs per byte between L2 and the SMs and 2,032 at DRAM. The ridge point of DRAM, 206, is between them, so without L2 the kernel would be memory-bound. The two points of decode have the same place. No data sheet states the bandwidth of L2. In the record `tune`, the SMs received up to 8,277 GB/s (closed form ÷ time, $d = 128$, tile $64 \times 64$). This is a lower limit of what L2 and the LRC deliver together.
# <!-- explorer = course.explore.models.kernel_explorer -->
# <!-- state = explorer.KernelState(90, 64, "forward", *explorer.shipped(explorer.KernelState(90, 64, "forward", 64, 64, 4, 3))) -->
# <!-- 63, 2,032 = explorer.intensities(state)[explorer.SM], explorer.intensities(state)[explorer.DRAM] -->
# <!-- 206 = roofline.ridge_point(h200) -->
# <!-- fastest = explorer.fastest_traffic(explorer.shipped_records()) -->
# <!-- 8,277 = fastest.gbytes_per_s -->
# <!-- 64 \times 64 = fastest.at.BM, fastest.at.BN -->
# <!-- "$d = 128$" if fastest.table == "forward, d = 128" -->
#
# Is the prediction "limited by products" confirmed? A time alone cannot show which roof limits a kernel. The recorded forward pass with the tile $64 \times 128$ reaches 456 TFLOP/s, and three roofs are at 989 (products), 989 (exponentials) and 879 (shared memory). A product of two large matrices reaches 793 (record `roofs`), and cuDNN's attention 486 (record `attention`). So the record does not refute the prediction and does not confirm it.
# <!-- 456 = explorer.achieved_tflops(state, explorer.entries(state, explorer.shipped_records())[state.configuration]) -->
# <!-- 989, 879 = explorer.ceilings(state)["exponentials"], explorer.ceilings(state)["shared memory"] -->
# <!-- 793 = load_record("roofs")["product_tflops"] -->
# <!-- 64 \times 128 = state.BM, state.BN -->
# <!-- 486 = row("attention", d=64, N=4096, causal=False, contender="SDPA cuDNN", pass_="forward")["tflops"] -->
#
# ## 14.23 Three more predictions and their records
#
# **Slices of $d$.** By the rule of lesson 13, $B_M > \tfrac27 b$, complete rows move fewer bytes than slices with tiles of 128 rows if a program holds more than 36.6 rows. For $d = 320$ and $d = 512$ an H200 holds 64. So complete rows should win twice.
# <!-- 36.6 = 2 / 7 * tile("sliced_forward", 90, 512)[0] -->
# <!-- 128, 64 = tile("sliced_forward", 90, 512)[0], tile("forward", 90, 512)[0] -->
# <!-- "For $d = 320$ and $d = 512$ an H200 holds 64" if tile("forward", 90, 320)[0] == tile("forward", 90, 512)[0] == 64 -->
#
# **Predict** (guess). The time of complete rows divided by the time of slices, for the forward pass, at both $d$?

# %% tags=["predict"]
predict("14.23", at_320=0.6, at_512=0.6)  #> predict("14.23", at_320=..., at_512=...)

# %%
wide = load_record("small-cache")
print(record_source(wide))
form = {"complete rows": lambda p: forms.attention_forward(p, BM=64, BN=32),
        "slices": lambda p: forms.sliced_forward(p, BM=128, BN=128),
        "materialised": lambda p: forms.scores_forward(p, scores=(128, 128),
                                                       averages=(128, 64, 128))}
names = {"whole rows": "complete rows", "fused split-d": "slices",
         "materialised": "materialised"}  # of the record, of this text
ratio = {}
for d in (320, 512):
    ms = {}
    for row in wide["rows"]:
        if (row["d"], row["pass"], row["causal"]) == (d, "forward", False):
            heads = row["B"] * row["H"]
            ms[names.get(row["contender"])] = row.get("ms")
    for name, words in form.items():
        size = forms.ledger_bytes(words(forms.KernelProblem(4096, 4096, d)), 2)
        print(f"d = {d}, {name:13}: {heads} heads in {ms[name]:5.2f} ms; "
              f"one head: {size / 1e9:.2f} GB, {ms[name] / heads:.3f} ms")
    ratio[d] = ms["complete rows"] / ms["slices"]
measured("14.23", at_320=ratio[320], at_512=ratio[512])

# %% [markdown]
# <details><summary>Bytes and times of slices</summary>
#
# 1.22 and 0.65. At $d = 512$ the prediction holds. At $d = 320$ it is refuted: complete rows move 0.34 GB per head instead of 0.58 and take more time. Triton pads their 320 columns to 512, so products are 1.6 times as large, and 5 slices of 64 columns need no padding. The times per head are consistent with that: 0.156 and 0.170 ms for complete rows at both $d$, but 0.128 and 0.260 ms for slices. The library now launches slices there. Materialised scores move fewer bytes than slices and take 3 to 4.5 times as long; the record does not show why.
# <!-- timed = lambda d, name, causal=False: row("small-cache", d=d, causal=causal, contender=name, pass_="forward")["ms"] -->
# <!-- 1.6, 5 = 512 / 320, 320 / 64 -->
# <!-- 1.22, 0.65 = (timed(d, "whole rows") / timed(d, "fused split-d") for d in (320, 512)) -->
# <!-- per_head = lambda ledger: kernel_costs.ledger_bytes(ledger, 2) / 1e9 -->
# <!-- 0.34 = per_head(kernel_costs.attention_forward(kernel_costs.KernelProblem(4096, 4096, 320), BM=tile("forward", 90, 320)[0], BN=32)) -->
# <!-- sliced = lambda d: per_head(kernel_costs.sliced_forward(kernel_costs.KernelProblem(4096, 4096, d), BM=tile("sliced_forward", 90, d)[0], BN=tile("sliced_forward", 90, d)[1])) -->
# <!-- 0.58 = sliced(320) -->
# <!-- "Materialised scores move fewer bytes than slices" if all(per_head(kernel_costs.scores_forward(kernel_costs.KernelProblem(4096, 4096, d), scores=tile("scores", 90, 512)[:2], averages=tile("averages", 90, 512))) < sliced(d) for d in (320, 512)) -->
# <!-- each = lambda d, name: timed(d, name) / (row("small-cache", d=d, causal=False, contender=name, pass_="forward")["B"] * row("small-cache", d=d, causal=False, contender=name, pass_="forward")["H"]) -->
# <!-- 0.156, 0.170, 0.128, 0.260 = (each(d, name) for name in ("whole rows", "fused split-d") for d in (320, 512)) -->
# <!-- 3, 4.5 = (timed(d, "materialised") / timed(d, "fused split-d") for d in (512, 320)) -->
# <!-- "The library now launches slices there" if choice("forward pass", launch(90, 320)).value == "slices" -->
#
# </details>
#
# **Block masks.** By lesson 13, the time grows linearly with the number of nonempty blocks. The record `sparse-lines` has random masks with five densities.
#
# **Predict** (guess). At density 0.065, what fraction of the time at density 1 do the forward and the backward pass take?
# <!-- line = lambda pass_: row("sparse-lines", "lines", pass_=pass_)["points"] -->
# <!-- 0.065, 1 = line("forward")[0][0], line("forward")[-1][0] -->

# %% tags=["predict"]
predict("14.23b", forward=0.065, backward=0.065)  #> predict("14.23b", forward=..., backward=...)

# %%
sparse = load_record("sparse-lines")
print(record_source(sparse))
parts = {}
for line in sparse["lines"][:2]:
    points = line["points"]
    parts[line["pass"]] = points[0][1] / points[-1][1]
    print(f"{line['pass']}, N = {line['N']:,}")
    for density, ms in points:
        print(f"  density {density:.3f}: {ms:.2f} ms, {ms / density:5.2f} ms / density")
measured("14.23b", **parts)

# %% [markdown]
# <details><summary>A line and a floor</summary>
#
# 0.09 and 0.18. The line of the record for the forward pass, 0.08 ms + density · 2.45 ms, is within 2.3 %. The backward pass takes 7.5 to 8.1 ms times the density from 0.25 on, and below that it stays at 1.4 ms. This floor is consistent with host time, which the record does not have. Another row of this record ($N = 4096$, density 0.12, backward) has 1.40 ms, and the later record `sparse`, of other code, 0.71 ms.
# <!-- 0.09, 0.18 = (line(pass_)[0][1] / line(pass_)[-1][1] for pass_ in ("forward", "backward")) -->
# <!-- fitted = row("sparse-lines", "lines", pass_="forward") -->
# <!-- 0.08, 2.45, 2.3 = fitted["overhead_ms"], fitted["dense_ms"], 100 * fitted["deviation"] -->
# <!-- slopes = [ms / density for density, ms in line("backward")] -->
# <!-- 0.25, 7.5, 8.1 = line("backward")[2][0], min(slopes[2:]), max(slopes[2:]) -->
# <!-- 1.4 = line("backward")[0][1] -->
# <!-- "it stays at 1.4 ms" if [round(ms, 1) for _, ms in line("backward")[:2]] == [1.4, 1.4] -->
# <!-- random = lambda record: row(record, d=128, N=4096, mask="random", contender="fused", pass_="backward") -->
# <!-- 0.12, 1.40, 0.71 = random("sparse")["density"], random("sparse-lines")["ms"], random("sparse")["ms"] -->
# <!-- "of other code" if load_record("sparse-lines")["commit"][:7] != load_record("sparse")["commit"][:7] and "host_ms" not in random("sparse-lines") -->
#
# </details>
#
# **Packing.** By lesson 14b, packed sequences save the pairs that padding wastes. We use its record and packed kernel ("packed by descriptors"), compared with SDPA flash on padded sequences. The batch of equal lengths is the control.
#
# **Predict** (guess). In one batch with $d = 128$ padding multiplies the pairs by 4.39, and the packed forward pass was 4.95 times as fast (section 14.15). What is the speed of the packed backward pass relative to the padded one?
# <!-- packed = lambda pass_, **more: rows("varlen", contender="packed by descriptors", pass_=pass_, **more) -->
# <!-- 4.39, 4.95 = (packed("forward", d=128, lengths="log-uniform")[0][name] for name in ("saved", "ratio")) -->

# %% tags=["predict"]
predict("14.23c", backward=4.4)  #> predict("14.23c", backward=...)

# %%
packed = load_record("varlen")
print(record_source(packed))
times = {(row["contender"], row["d"], row["lengths"], row["pass"]): row["ms"]
         for row in packed["rows"]}
for row in packed["rows"]:
    if row["contender"] == "packed by descriptors" and row["pass"] != "forward+backward":
        where = (row["d"], row["lengths"], row["pass"])
        cudnn = times["SDPA cuDNN", *where] / row["ms"]
        print(f"d = {row['d']:3}, {row['lengths']:11} {row['pass']:8}: "
              f"pairs {row['saved']:.2f}; speed relative to flash {row['ratio']:.2f}, "
              f"divided by pairs {row['of_saved']:.2f}; to cuDNN {cudnn:.2f}")
        if where == (128, "log-uniform", "backward"):
            measured("14.23c", backward=row["ratio"])

# %% [markdown]
# <details><summary>Saved pairs and speed</summary>
#
# 4.35. The speeds divided by the pairs are 0.87 to 1.25. But the control, without padding, has 1.16 and 1.04. Divided by these, the quotients at $d = 128$ are 0.95 to 1.08, so the prediction holds there within 8 %. For $d = 64$ the record has no control. Relative to SDPA cuDNN on padded sequences, packing is only 1.5 to 2.6 times as fast ($d = 128$). At equal lengths, cuDNN is 1.5 and 1.8 times as fast as the packed kernel.
# <!-- 4.35 = packed("backward", d=128, lengths="log-uniform")[0]["ratio"] -->
# <!-- quotient = lambda pass_, **more: [one["of_saved"] for one in packed(pass_, **more)] -->
# <!-- 0.87, 1.25 = min(quotient("backward")), max(quotient("forward")) -->
# <!-- control = {pass_: quotient(pass_, lengths="equal")[0] for pass_ in ("forward", "backward")} -->
# <!-- 1.16, 1.04 = control["forward"], control["backward"] -->
# <!-- corrected = [one / control[pass_] for pass_ in ("forward", "backward") for lengths in ("log-uniform", "uniform") for one in quotient(pass_, d=128, lengths=lengths)] -->
# <!-- 0.95, 1.08 = min(corrected), max(corrected) -->
# <!-- 8 = 100 * (max(corrected) - 1) -->
# <!-- "For $d = 64$ the record has no control" if {one["d"] for one in rows("varlen", contender="packed by descriptors", lengths="equal", pass_="forward") if "of_saved" in one} == {128} -->
# <!-- faster = lambda lengths: [speeds("varlen", "SDPA cuDNN", "packed by descriptors", d=128, lengths=lengths, pass_=pass_)[0] for pass_ in ("forward", "backward")] -->
# <!-- 1.5, 2.6 = min(faster("log-uniform") + faster("uniform")), max(faster("log-uniform") + faster("uniform")) -->
# <!-- 1.5, 1.8 = 1 / faster("equal")[0], 1 / faster("equal")[1] -->
#
# </details>
#
# ## 14.24 Where bytes do not decide
#
# The record `tune` has two pairs of kernels whose bytes do not predict their times ($d = 64$, $N = 4096$):
#
# 1. The fused and the two-pass backward pass, with their default tiles.
# 2. The forward pass with tiles of $64 \times 64$ and of $128 \times 64$, both with 4 warps.
# <!-- ms = lambda kernel, *tile: next(one["ms"][0] for one in row("tune", "kernels", kernel=kernel, d=64)["tried"] if one["tile"] == list(tile)) -->
# <!-- small, large = [64, 64, 4, 3], [128, 64, 4, 3] -->
# <!-- 64 \times 64 = small[:2] -->
# <!-- 128 \times 64 = large[:2] -->
# <!-- 4 = small[2] -->
#
# **Predict** (guess). In pair 1 both kernels move the same number of bytes, and in pair 2 the ratio of the bytes is 1.97. What is the ratio of the times in each pair, first divided by second?
# <!-- backward = kernel_costs.KernelProblem(4096, 4096, 64, B=4, H=32, H_kv=32) -->
# <!-- fused = kernel_costs.attention_fused_backward(backward, BM=64, BN=128) -->
# <!-- sent = kernel_costs.ledger_bytes(fused, 2) - 4 * fused.reads["dQ_sum"] -->
# <!-- "the same number of bytes" if sent == kernel_costs.ledger_bytes(kernel_costs.attention_split_backward(backward, queries=tile("queries", 90, 64), keys=tile("keys", 90, 64)), 2) -->
# <!-- forward_bytes = lambda BM: kernel_costs.ledger_bytes(kernel_costs.attention_forward(backward, BM=BM, BN=64), 2) -->
# <!-- 1.97 = forward_bytes(64) / forward_bytes(128) -->

# %% tags=["predict"]
predict("14.24", backward=1, forward=2)  #> predict("14.24", backward=..., forward=...)

# %%
from iocourse.gpu import timed_tiles

tables = timed_tiles.tables("tune")
fused_ms = load_record("tune")["kernels"][1]["tried"][0]["ms"][0]


def tried(table, *tile):
    """The row of a table with this tile: BM, BN, warps, stages."""
    return next(row for row in tables[table]
                if tuple(row[name] for name in ("BM", "BN", "warps", "stages")) == tile)


problem = forms.KernelProblem(4096, 4096, 64, B=4, H=32, H_kv=32)  # 128 heads, as timed
fused = forms.attention_fused_backward(problem, BM=64, BN=128)
sent = forms.ledger_bytes(fused, 2) - 4 * fused.reads["dQ_sum"]  # an addition is sent once
split = forms.attention_split_backward(problem, queries=(128, 64), keys=(128, 128))
split_ms = tried("keys, d = 64", 128, 128, 8, 3)["ms"]  # of the complete pass, both kernels
print(f"fused    {sent:,} bytes, {fused_ms:.2f} ms")
print(f"two-pass {forms.ledger_bytes(split, 2):,} bytes, {split_ms:.2f} ms")
for d, *tiles in ((64, (64, 64, 4, 3), (128, 64, 4, 3), (64, 128, 4, 3)),
                  (128, (64, 64, 4, 3), (128, 64, 8, 3))):
    for tile in tiles:
        row = tried(f"forward, d = {d}", *tile)
        print(f"forward, d = {d:3}, {tile}: {row['words']:10,} words per head, "
              f"programs per SM: {row['blocks']}, warps: {row['warps_per_sm']:2}, "
              f"instructions per score: {row['instructions']:4.1f}, {row['ms']:.2f} ms")
first, second = (tried("forward, d = 64", BM, 64, 4, 3)["ms"] for BM in (64, 128))
measured("14.24", backward=fused_ms / split_ms, forward=first / second)

# %% [markdown]
# <details><summary>Two ratios, and what may explain them</summary>
#
# 1.46 and 0.92. The record has no counters, so the reasons are conjectures.
#
# 1. Both backward passes move 9,267,314,688 bytes for 128 heads. The two-pass kernels compute seven products instead of five and still take less time. In the fused pass 46 % of the bytes are atomic additions, for which L2 reads, adds and writes each word. The time is consistent with slow additions.
# 2. The tile of $64 \times 64$ is 1.09 times as fast. With three programs per SM instead of two, one can compute while another one waits. The pair with $d = 128$ is consistent with that: 8 warps as two programs or as one, equal instructions per score, 1.97 as the ratio of the words, and 1.10 times as fast. A third tile is not. $64 \times 128$ has as many programs and warps per SM as $128 \times 64$, and is also 1.09 times as fast. It has fewer instructions per score.
# <!-- 9,267,314,688 = sent -->
# <!-- 128 = backward.B * backward.H -->
# <!-- 46 = 100 * 4 * fused.reads["dQ_sum"] / sent -->
# <!-- 1.46, 0.92, 1.09 = ms("fused", 64, 128, 8, 2) / ms("keys", 128, 128, 8, 3), ms("forward", *small) / ms("forward", *large), ms("forward", *large) / ms("forward", *small) -->
# <!-- 64 \times 64 = small[:2] -->
# <!-- tried = lambda *tile: next(one for one in checkout("iocourse.gpu.timed_tiles").tables("tune")["forward, d = 128"] if (one["BM"], one["BN"], one["warps"], one["stages"]) == tile) -->
# <!-- two, one_program = tried(64, 64, 4, 3), tried(128, 64, 8, 3) -->
# <!-- 8 = two["warps_per_sm"] -->
# <!-- "as two programs or as one" if (two["blocks"], one_program["blocks"]) == (2, 1) and two["warps_per_sm"] == one_program["warps_per_sm"] -->
# <!-- "equal instructions per score" if two["instructions"] == one_program["instructions"] -->
# <!-- 1.97, 1.10 = two["words"] / one_program["words"], one_program["ms"] / two["ms"] -->
# <!-- narrow = lambda *tile: next(one for one in checkout("iocourse.gpu.timed_tiles").tables("tune")["forward, d = 64"] if (one["BM"], one["BN"], one["warps"], one["stages"]) == tile) -->
# <!-- wide, tall, square = narrow(64, 128, 4, 3), narrow(128, 64, 4, 3), narrow(64, 64, 4, 3) -->
# <!-- 64 \times 128 = wide["BM"], wide["BN"] -->
# <!-- 128 \times 64 = tall["BM"], tall["BN"] -->
# <!-- "three programs per SM instead of two" if (square["blocks"], tall["blocks"]) == (3, 2) -->
# <!-- "as many programs and warps per SM" if (wide["blocks"], wide["warps_per_sm"]) == (tall["blocks"], tall["warps_per_sm"]) and wide["words"] == square["words"] -->
# <!-- "also 1.09 times as fast" if round(tall["ms"] / wide["ms"], 2) == 1.09 -->
# <!-- "fewer instructions per score" if wide["instructions"] < tall["instructions"] -->
#
# </details>
#
# Here the model ends. Bytes count neither instructions, nor kinds of requests, nor hidden waiting times.
#
# ## Where to go next
#
# - **Profilers.** [Nsight Systems](https://docs.nvidia.com/nsight-systems/) shows the timeline of host and GPU, [Nsight Compute](https://docs.nvidia.com/nsight-compute/) the counters of one kernel, and Triton's [Proton](https://github.com/triton-lang/triton/tree/main/third_party/proton) times regions of a program.
# - **Courses.** The [GPU MODE lectures](https://github.com/gpu-mode/lectures) treat flash attention, Triton, CUTLASS and profiling. Stanford's [CS336](https://cs336.stanford.edu/) treats kernels and Triton in a course on language models.
# - **Beyond Triton.** [Gluon](https://triton-lang.org/main/gluon/), in Triton's repository, exposes layouts, shared memory and warp specialisation. [CUTLASS and CuTe](https://docs.nvidia.com/cutlass/) do so in C++ and Python.
# - **FlashAttention-3 and 4.** [FlashAttention-3](https://arxiv.org/abs/2407.08608) overlaps products with softmax and reports up to 740 TFLOP/s in 16 bits on an H100. [FlashAttention-4](https://arxiv.org/abs/2603.05451) is written in CuTe's Python language and reports up to 1,613 TFLOP/s on a B200, up to 2.7 times the speed of Triton. It computes part of the exponentials by polynomials.
# <!-- 740 from https://arxiv.org/abs/2407.08608 -->
# <!-- 1,613, 2.7 from https://arxiv.org/abs/2603.05451 -->
#
# ## Misconceptions
#
# - **"FlashAttention reads $K$ and $V$ from DRAM $\lceil N/B_M \rceil$ times."** Its programs request them so often. DRAM delivered each input once in the recorded forward passes (14.18).
# - **"The profiler's L2 counter is the closed form."** L2 looks up fewer words, because requests are merged on the way. The counter on the side of the SMs was within 0.14 % of the closed form (14.18).
# - **"Grouped-query attention saves FLOPs."** It has the same FLOPs and fewer words of $K$ and $V$ (14.20). But 32 times fewer words gave 5.8 times less time (14.21).
# <!-- 32, 5.8 = 32 / 1, own(32)["us"] / own(1)["us"] -->
# - **"The kernel with fewer bytes takes less time."** Complete rows at $d = 320$ have fewer bytes and take more time, and so does the tile of $128 \times 64$ in section 14.24.
# <!-- "take more time" if timed(320, "whole rows") > timed(320, "fused split-d") and ms("forward", 128, 64, 4, 3) > ms("forward", 64, 64, 4, 3) -->
# <!-- 128 \times 64 = large[:2] -->
#
# ## Take-away
#
# - The closed form was within 0.14 % of the bytes that the SMs read. In the recorded forward passes, DRAM delivered each word once: programs that share keys ran together, and their keys fit in L2.
# <!-- 0.14 = math.ceil(10000 * max(abs(first(run) / form(run) - 1) for run in launches)) / 100 -->
# - A split-KV step took the copy time of its bytes plus 11 to 25 µs on the recorded H200.
# <!-- 11, 25 = min(excess), max(excess) -->
# - Test each prediction on a record that can refute it, and add a control.
#
# ## References
#
# - S. Williams, A. Waterman, D. Patterson: *Roofline*, Communications of the ACM 52(4), 2009.
# - N. Shazeer: *Fast transformer decoding*, 2019, [arXiv 1911.02150](https://arxiv.org/abs/1911.02150).
# - J. Ainslie et al.: *GQA*, 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245).
# - A. Grattafiori et al.: *The Llama 3 herd of models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783).
# - Y. Leviathan, M. Kalman, Y. Matias: *Fast inference from transformers via speculative decoding*, 2023, [arXiv 2211.17192](https://arxiv.org/abs/2211.17192).
# - NVIDIA: data sheets (`iocourse.gpu.CHIPS` names them), that of the [H200](https://www.nvidia.com/en-us/data-center/h200/), and the [metrics of Nsight Compute](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html), for the LRC and the counters.
#
# **What comes next.** <!-- next --> So far every schedule computes all pairs that its mask keeps. Low-rank attention approximates $e^{QK^\top}$ by a product of two thin matrices and needs almost linear time.
