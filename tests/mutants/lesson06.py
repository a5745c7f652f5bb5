"""What is known about the exercises of lesson 06: mistakes, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import costs, exact, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises import lesson06
from iocourse.explore import pair_residency
from iocourse.machine import probabilities

LARGE = "scores of ±10,000 neither overflow nor vanish"
BLOCK_SIZE = "block size does not change the answer"
FITS = "fits in fast memory"
LOADED = "every word of the input is loaded"
TOTAL = "no more words move than the closed form says"

# ---------------------------------------------------------------------- 6A
P_ALL, P_PART = "p is right where the tile holds all keys", "p is the tile's part of P"
DS_ALL, DS_PART = "ds is right where the tile holds all keys", "ds is the tile's part of dS"


def entry_by_entry(q, k, v, do, o, L):
    """(6.1) to (6.6) in loops over single pairs."""
    rows, keys = len(q), len(k)
    p, ds = np.zeros((rows, keys)), np.zeros((rows, keys))
    for i in range(rows):
        D = float(do[i] @ o[i])
        for j in range(keys):
            p[i, j] = np.exp(q[i] @ k[j] / len(q[i]) ** 0.5 - L[i])
            ds[i, j] = p[i, j] * (do[i] @ v[j] - D)
    return p, ds


def as_a_list(q, k, v, do, o, L):
    return [*two_products_apart(q, k, v, do, o, L)]


def two_products_apart(q, k, v, do, o, L):
    """p∘dp less D times p."""
    p = np.exp(np.einsum("ic,jc->ij", q, k) / q.shape[1] ** 0.5 - L.reshape(-1, 1))
    D = np.einsum("ic,ic->i", do, o)
    return p, p * np.einsum("ic,jc->ij", do, v) - np.diag(D) @ p


def remembered_by_shape(q, k, v, do, o, L):
    """The first result for tiles of these shapes, for ever."""
    shapes = (q.shape, k.shape)
    return REMEMBERED.setdefault(shapes, two_products_apart(q, k, v, do, o, L))


def into_one_buffer(q, k, v, do, o, L):
    """What an earlier call returned is written over."""
    p, ds = BUFFERS.setdefault((q.shape, k.shape), np.empty((2, len(q), len(k))))
    p[:], ds[:] = two_products_apart(q, k, v, do, o, L)
    return p, ds


REMEMBERED, BUFFERS = {}, {}


def library_softmax(q, k, v, do, o, L):
    P = exact.softmax(q @ k.T / q.shape[1] ** 0.5)
    return P, exact.softmax_backward(P, do @ v.T)


def zeros_of_a_tile(q, k, v, do, o, L):
    return np.zeros((len(q), len(k))), np.zeros((len(q), len(k)))


def weights_alone(q, k, v, do, o, L):
    return np.exp(q @ k.T / q.shape[1] ** 0.5 - L[:, None])


OVER_THE_TILE = (("(do * o).sum(axis=1)", "(p * (do @ v.T)).sum(axis=1)"),)
SOFTMAX_OF_THE_TILE = (
    ("np.exp(s - L[:, None]) ", "np.exp(s - s.max(axis=1, keepdims=True)); p /= p.sum(1, keepdims=True) "),
)

TILE = Suite(
    id="6A",
    mutants=(
        Mutant("D-over-the-tile", DS_PART, *OVER_THE_TILE),
        Mutant("softmax-of-the-tile", P_PART, *SOFTMAX_OF_THE_TILE),
        Mutant("no-scale", P_ALL, (" / np.sqrt(q.shape[1])", "")),
        Mutant("scale-of-one-d", P_ALL, ("np.sqrt(q.shape[1])", "2.0")),
        Mutant("q-scaled-in-place", RUNS, ("s = q @ k.T / np", "q /= np"), ("p = np", "s = q @ k.T; p = np")),
        Mutant("L-forgotten", P_ALL, (" - L[:, None]", "")),
        Mutant("exp-over-exp", P_PART, ("np.exp(s - L[:, None])", "np.exp(s) / np.exp(L)[:, None]")),
        Mutant("D-forgotten", DS_ALL, (" - D[:, None]", "")),
        Mutant("D-added", DS_ALL, ("- D[:, None]", "+ D[:, None]")),
        Mutant("D-outside-the-bracket", DS_ALL, ("(do @ v.T - D[:, None])", "(do @ v.T) - D[:, None]")),
        Mutant("D-from-V", DS_ALL, ("(do * o)", "(do * do)")),
        Mutant("weights-forgotten", DS_ALL, ("return p, p * ", "return p, ")),
        Mutant("scaled-twice", DS_ALL, ("D[:, None])", "D[:, None]) / np.sqrt(q.shape[1])")),
        Mutant("exchanged", P_ALL, ("return p, p * (do @ v.T - D[:, None])", "return p * (do @ v.T), p")),
    ),
    right=(entry_by_entry, two_products_apart, as_a_list),
    cheats=(
        (library_softmax, OWN),
        (exact.softmax_backward, OWN),
        (zeros_of_a_tile, P_PART),
        (zeros_of_a_tile, DS_PART),
        (weights_alone, DS_PART),
        (remembered_by_shape, P_ALL),
        (into_one_buffer, RUNS),
    ),
)


# ---------------------------------------------------------------------- 6B
def fused_by_range(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Plain ranges, free() everywhere, one temporary for dP; D of each block on the first visit."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for start in range(0, N, Bc):
        keys = (start, min(start + Bc, N))
        k, v, dk, dv = m.load(K, keys), m.load(V, keys), m.zeros(keys, d), m.zeros(keys, d)
        for first in range(0, N, Br):
            rows = (first, min(first + Br, N))
            if start == 0:
                products_of(m, O, dO, D, rows)
            one_visit(m, (Q, dO, LSE, D, dQ), (k, v, dk, dv), rows, start == 0)
        m.store(dk, dK, keys)
        m.store(dv, dV, keys)
        for tile in (k, v, dk, dv):
            tile.free()
    return dQ, dK, dV


def products_of(m, O, dO, D, rows):
    with m.load(O, rows) as o, m.load(dO, rows) as do:
        do *= o
        with do.sum(axis=1) as products:
            m.store(products, D, rows)


def one_visit(m, rows_of, columns, rows, is_first):
    Q, dO, LSE, D, dQ = rows_of
    k, v, dk, dv = columns
    d = Q.shape[1]
    q, log_sums = m.load(Q, rows), m.load(LSE, rows)
    p = q @ k.T
    p *= d**-0.5
    p -= log_sums[:, None]
    np.exp(p, out=p)
    do = m.load(dO, rows)
    dv.add_matmul(p.T, do)
    dp = do @ v.T
    do.free()
    products = m.load(D, rows, into=log_sums)
    dp -= products[:, None]
    p *= dp
    dp.free()
    p *= d**-0.5
    dk.add_matmul(p.T, q)
    dq = m.zeros(rows, d) if is_first else m.load(dQ, rows)
    dq.add_matmul(p, k)
    m.store(dq, dQ, rows)
    for tile in (q, p, dq, products):
        tile.free()


def dQ_into_the_place_of_dO(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """The room of dO_i is handed over by into=, and the scale waits until the end."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        products_of(m, O, dO, D, (i.start, i.stop))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            k *= d**-0.5
            for i in m.blocks(N, Br):
                q, do, log_sums, products = m.load(Q, i), m.load(dO, i), m.load(LSE, i), m.load(D, i)
                s = q @ k.T
                probabilities(s, log_sums)
                dv.add_matmul(s.T, do)
                s.multiply_by_matmul(do, v.T, less=products)
                dk.add_matmul(s.T, q)
                if j.first:
                    do *= 0.0
                    dq = do
                else:
                    dq = m.load(dQ, i, into=do)
                dq.add_matmul(s, k)
                m.store(dq, dQ, i)
                for tile in (q, s, log_sums, products, dq):
                    tile.free()
            dk *= d**-0.5
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def zero_gradients(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    N, d = Q.shape
    made = [m.new(name, (N, d)) for name in ("dQ", "dK", "dV")]
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as z:
            for array in made:
                m.store(z, array, i)
    return tuple(made)


def materialised(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """All N x N matrices in fast memory: right values, far too much room."""
    N, d = Q.shape
    q, k, v, do, o = (m.load(A, (0, N)) for A in (Q, K, V, dO, O))
    q *= d**-0.5
    s = q @ k.T
    probabilities(s, m.load(LSE, (0, N)))
    dV = keep(m, s.T @ do, "dV")
    D = m.zeros(N)
    D.add_row_dots(do, o)
    s.multiply_by_matmul(do, v.T, less=D)
    dK = keep(m, s.T @ q, "dK")
    s *= d**-0.5
    return keep(m, s @ k, "dQ"), dK, dV


def keep(m, tile, name):
    array = m.new(name, tile.shape)
    m.store(tile, array, (0, tile.shape[0]))
    return array


def weights_in_slow_memory(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Writes P out and reads it back before it goes on."""
    N = Q.shape[0]
    P = m.new("P", (N, N))
    for i in m.blocks(N, Br):
        for j in m.blocks(N, Bc):
            with m.load(Q, i) as q, m.load(K, j) as k, q @ k.T as s:
                m.store(s, P, i, j)
            m.load(P, i, j).free()
    return fused_by_range(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)


def library_schedule_inside(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    return schedules.fused_backward(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)


def taken_from_the_machine(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    return exact.attention_backward(m.take(Q), m.take(K), m.take(V), m.take(dO))


def dK_and_dV_exchanged(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    dQ, dK, dV = fused_by_range(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)
    return dQ, dV, dK


def only_dQ(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    return fused_by_range(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)[0]


def fifty_loads_of_K(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    for _ in range(50):
        for j in m.blocks(K.shape[0], 1):
            m.load(K, j).free()
    return fused_by_range(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)


Q_PASSES, DO_PASSES = "Q is read ⌈N/Bc⌉ times", "dO is read ⌈N/Bc⌉ + 1 times"
DQ_IN, DQ_OUT = "dQ is read ⌈N/Bc⌉ - 1 times", "dQ is written ⌈N/Bc⌉ times"
SIDE_BY_SIDE = (
    ("with m.load(dO, i) as do:  # (Br, d)", "do = m.load(dO, i)\n                        if True:"),
    ("m.store(dq, dQ, i)", "m.store(dq, dQ, i)\n                        do.free()"),
)
ALWAYS_READ = (
    (
        "    for j in m.blocks(N, Bc):  # stays",
        "    clear(m, dQ, Br)\n    for j in m.blocks(N, Bc):  # stays",
    ),
    ("m.zeros(i, d) if j.first else m.load(dQ, i)", "m.load(dQ, i)"),
    (
        "def my_fused",
        "def clear(m, dQ, Br):\n    for i in m.blocks(dQ.shape[0], Br):\n"
        "        with m.zeros(i, dQ.shape[1]) as z:\n            m.store(z, dQ, i)\n\n\ndef my_fused",
    ),
)

FUSED = Suite(
    id="6B",
    mutants=(
        Mutant("no-scale", "dQ is exact", ("q *= d**-0.5", "pass")),
        Mutant("scale-of-one-d", "dQ is exact", ("d**-0.5", "14**-0.5")),
        Mutant("dQ-not-scaled", "dQ is exact", ("s *= d**-0.5", "pass")),
        Mutant(
            "dK-scaled-twice",
            "dK is exact",
            ("dk.add_matmul", "s *= d**-0.5; dk.add_matmul"),
            ("s *= d**-0.5\n", "pass\n"),
        ),
        Mutant(
            "dV-from-dS",
            "dV is exact",
            ("dv.add_matmul(s.T, do)", "pass"),
            ("dk.add_matmul", "dv.add_matmul(s.T, q); dk.add_matmul"),
        ),
        Mutant(
            "D-doubled",
            "dK is exact",
            ("D_i.add_row_dots(do, o)", "D_i.add_row_dots(do, o); D_i *= 2.0"),
        ),
        Mutant("D-of-O-and-O", "dQ is exact", ("add_row_dots(do, o)", "add_row_dots(o, o)")),
        Mutant("K-for-V", "dK is exact", ("multiply_by_matmul(do, v.T", "multiply_by_matmul(do, k.T")),
        Mutant(
            "always-from-zeros",
            "dQ is exact",
            ("m.zeros(i, d) if j.first else m.load(dQ, i)", "m.zeros(i, d)"),
        ),
        Mutant("read-before-written", RUNS, ("m.zeros(i, d) if j.first else m.load(dQ, i)", "m.load(dQ, i)")),
        Mutant("zeros-in-slow-memory-first", DQ_IN, *ALWAYS_READ),
        Mutant("zeros-in-slow-memory-first-written", DQ_OUT, *ALWAYS_READ),
        Mutant(
            "exp-before-L",
            LARGE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); np.exp(L_i, out=L_i); s /= L_i[:, None]"),
        ),
        Mutant(
            "softmax-of-the-tile",
            "dV is exact",
            ("probabilities(s, L_i)", "np.exp(s, out=s); s /= s.sum(axis=1, keepdims=True)"),
        ),
        Mutant(
            "softmax-of-the-tile-depends-on-tiles",
            BLOCK_SIZE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); s /= s.sum(axis=1, keepdims=True)"),
        ),
        Mutant("dO-beside-dQ", FITS, *SIDE_BY_SIDE),
        Mutant("O-at-every-visit", "O is read once", ("q *= d**-0.5", "q *= d**-0.5; m.load(O, i).free()")),
        Mutant(
            "K-in-the-inner-loop",
            "K is read once",
            ("q *= d**-0.5", "q *= d**-0.5; k = m.load(K, j, into=k)"),
        ),
        Mutant(
            "V-in-the-inner-loop",
            "V is read once",
            ("q *= d**-0.5", "q *= d**-0.5; v = m.load(V, j, into=v)"),
        ),
        Mutant("Q-loaded-twice", Q_PASSES, ("q *= d**-0.5", "q = m.load(Q, i, into=q); q *= d**-0.5")),
        Mutant(
            "dO-loaded-twice",
            DO_PASSES,
            ("dv.add_matmul(s.T, do)", "do = m.load(dO, i, into=do); dv.add_matmul(s.T, do)"),
        ),
        Mutant("dQ-stored-twice", DQ_OUT, ("m.store(dq, dQ, i)", "m.store(dq, dQ, i); m.store(dq, dQ, i)")),
        Mutant(
            "dK-stored-every-time", "dK is written once", ("s *= d**-0.5", "s *= d**-0.5; m.store(dk, dK, j)")
        ),
        Mutant(
            "dV-stored-every-time", "dV is written once", ("s *= d**-0.5", "s *= d**-0.5; m.store(dv, dV, j)")
        ),
        Mutant(
            "L-loaded-twice", TOTAL, ("probabilities(s, L_i)", "m.load(LSE, i).free(); probabilities(s, L_i)")
        ),
        Mutant("all-keys-at-once", FITS, ("q *= d**-0.5", "q *= d**-0.5; copy = m.load(K, (0, N))")),
        Mutant(
            "last-keys-skipped",
            RUNS,
            ("for j in m.blocks(N, Bc)", "for j in list(m.blocks(N, Bc))[: N // Bc]"),
        ),
    ),
    right=(fused_by_range, dQ_into_the_place_of_dO),
    cheats=(
        (zero_gradients, "dQ is exact"),
        (zero_gradients, LOADED),
        (materialised, FITS),
        (weights_in_slow_memory, TOTAL),
        (library_schedule_inside, OWN),
        (schedules.fused_backward, OWN),
        (schedules.fused_backward.body, OWN),
        (costs.fused_backward, OWN),
        (taken_from_the_machine, RUNS),
        (dK_and_dV_exchanged, "dK is exact"),
        (only_dQ, "dQ is exact"),
        (fifty_loads_of_K, "K is read once"),
        (fifty_loads_of_K, TOTAL),
    ),
)


# ---------------------------------------------------------------------- 6C
ROWS_DQ, COLUMNS_DK = "rows stay for dQ", "columns stay for dK, or for dK and dV"
DV_ALONE, PASSES = "V stays away where dV alone is asked for", "a gradient that passes by counts twice"


def by_names(stays, gradients):
    """Two lists of array names, and their lengths."""
    arrays = {"rows": ["Q", "dO"], "columns": ["K"]}
    if "dQ" in gradients or "dK" in gradients:
        arrays["columns"].append("V")
    for name in gradients:
        side = "rows" if name == "dQ" else "columns"
        arrays[side] += [name] if side == stays else [name, name]
    return len(arrays["rows"]) * len(arrays["columns"])


def using_up_the_set(stays, gradients):
    """Takes the names out one by one: the notebook asks for rows and for columns with one set."""
    sides = {"rows": 2, "columns": 1 + (gradients != {"dV"})}
    while gradients:
        side = "rows" if gradients.pop() == "dQ" else "columns"
        sides[side] += 1 if side == stays else 2
    return sides["rows"] * sides["columns"]


def by_cases(stays, gradients):
    """Other arithmetic: what does not travel is taken off again."""
    doubled = {"rows": 2 + 2 * ("dQ" in gradients), "columns": 1 + bool({"dQ", "dK"} & set(gradients))}
    doubled["columns"] += 2 * len(set(gradients) - {"dQ"})
    at_home = {"rows": {"dQ"}, "columns": {"dK", "dV"}}[stays] & set(gradients)
    doubled[stays] -= len(at_home)
    return float(doubled["rows"] * doubled["columns"])


def passing_once(stays, gradients):
    """Right wherever nothing passes by but inputs."""
    columns = 1 if gradients == {"dV"} else 2
    return (2 + len(gradients & {"dQ"})) * (columns + len(gradients & {"dK", "dV"}))


SWEEPS = Suite(
    id="6C",
    mutants=(
        Mutant("the-caller's-set-emptied", RUNS, ("    return", "    gradients.discard('dQ')\n    return")),
        Mutant("V-always", DV_ALONE, ('1 if gradients == {"dV"} else 2', "2")),
        Mutant("passing-counts-once", PASSES, ("2 * on_columns", "on_columns"), ("2 * on_rows", "on_rows")),
        Mutant("staying-counts-twice", ROWS_DQ, ("(rows + on_rows)", "(rows + 2 * on_rows)")),
        Mutant(
            "staying-counts-twice-columns",
            COLUMNS_DK,
            ("(columns + on_columns)", "(columns + 2 * on_columns)"),
        ),
        Mutant("dO-forgotten", ROWS_DQ, ("rows = 2 ", "rows = 1 ")),
        Mutant("sides-exchanged", ROWS_DQ, ('stays == "rows"', 'stays == "columns"')),
        Mutant("sum-instead-of-product", ROWS_DQ, (") * (", ") + (")),
        Mutant("D-counts-as-an-array", COLUMNS_DK, ("rows = 2 ", "rows = 3 ")),
    ),
    right=(by_names, by_cases),
    cheats=(
        (using_up_the_set, RUNS),
        (called("always_fourteen", lambda stays, gradients: 14), ROWS_DQ),
        (passing_once, PASSES),
        (called("from_the_library", lambda stays, gradients: lesson06.constant(stays, gradients)), OWN),
        (lesson06.constant, OWN),
        (called("largest_array_count", lambda stays, gradients: {1: 6, 2: 8, 3: 16}[len(gradients)]), PASSES),
    ),
)


# ---------------------------------------------------------------------- 6D
def rows_by_range(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Plain ranges, free() everywhere, the scale on the keys, one temporary for dP."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    for first in range(0, N, Br):
        rows = (first, min(first + Br, N))
        do, o = m.load(dO, rows), m.load(O, rows)
        o *= do
        products = o.sum(axis=1)
        o.free()
        m.store(products, D, rows)
        q, dq, log_sums = m.load(Q, rows), m.zeros(rows, d), m.load(LSE, rows)
        for start in range(0, N, Bc):
            keys = (start, min(start + Bc, N))
            k, v = m.load(K, keys), m.load(V, keys)
            k *= d**-0.5
            s, dp = q @ k.T, do @ v.T
            s -= log_sums[:, None]
            np.exp(s, out=s)
            dp -= products[:, None]
            s *= dp
            dq.add_matmul(s, k)
            for tile in (k, v, s, dp):
                tile.free()
        m.store(dq, dQ, rows)
        for tile in (do, products, q, dq, log_sums):
            tile.free()
    return dQ, D


def outputs_column_by_column(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """O comes in columns, as in the library, with q and dq in place already."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    for i in m.blocks(N, Br):
        with m.load(dO, i) as do, m.load(LSE, i) as L_i, m.zeros(i) as D_i, m.load(Q, i) as q:
            for c in m.blocks(d, 1):
                with m.load(O, i, c) as o:
                    D_i.add_row_dots(do[:, c.start : c.stop], o)
            m.store(D_i, D, i)
            q *= d**-0.5
            with m.zeros(i, d) as dq:
                for j in m.blocks(N, Bc):
                    with m.load(K, j) as k, q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(V, j) as v:
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        s *= d**-0.5
                        dq.add_matmul(s, k)
                m.store(dq, dQ, i)
    return dQ, D


def keys_outside(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """The loop order of 6.6, which lets dQ travel."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    for i in m.blocks(N, Br):
        products_of(m, O, dO, D, (i.start, i.stop))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):
                with m.load(Q, i) as q, m.load(LSE, i) as L_i, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(dO, i) as do:
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
    return dQ, D


def zero_rows(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as z, m.zeros(i) as z1:
            m.store(z, dQ, i)
            m.store(z1, D, i)
    return dQ, D


def all_of_the_library(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    return schedules.split_backward(m, Q, K, V, O, dO, LSE, Br1=Br, Bc1=Bc, Br2=Br, Bc2=Bc)[0], O


def exchanged(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    return rows_by_range(m, Q, K, V, O, dO, LSE, Br=Br, Bc=Bc)[::-1]


KEYS_PASS, VALUES_PASS = "K is read ⌈N/Br⌉ times", "V is read ⌈N/Br⌉ times"
O_STAYS = (
    ("with m.load(O, i) as o:  # gone before q and dq take room", "o = m.load(O, i)\n            if True:"),
    ("m.store(dq, dQ, i)", "m.store(dq, dQ, i)\n            o.free()"),
)

QUERIES = Suite(
    id="6D",
    mutants=(
        Mutant("no-scale", "dQ is exact", (" q *= d**-0.5", " pass")),
        Mutant("scale-of-one-d", "dQ is exact", ("d**-0.5", "14**-0.5")),
        Mutant("dQ-not-scaled", "dQ is exact", (" dq *= d**-0.5", " pass")),
        Mutant(
            "scaled-in-the-inner-loop",
            BLOCK_SIZE,
            ("dq.add_matmul(s, k)", "dq.add_matmul(s, k); dq *= d**-0.5"),
            ("                dq *= d**-0.5\n", ""),
        ),
        Mutant(
            "D-not-subtracted", "dQ is exact", ("s.multiply_by_matmul(do, v.T, less=D_i)", "s *= do @ v.T")
        ),
        Mutant("D-of-dO", "D is exact", ("add_row_dots(do, o)", "add_row_dots(do, do)")),
        Mutant(
            "exp-before-L",
            LARGE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); np.exp(L_i, out=L_i); s /= L_i[:, None]"),
        ),
        Mutant(
            "softmax-of-the-tile",
            BLOCK_SIZE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); s /= s.sum(axis=1, keepdims=True)"),
        ),
        Mutant("O-stays", FITS, *O_STAYS),
        Mutant("K-loaded-twice", KEYS_PASS, ("probabilities(", "m.load(K, j).free(); probabilities(")),
        Mutant("V-loaded-twice", VALUES_PASS, ("probabilities(", "v = m.load(V, j, into=v); probabilities(")),
        Mutant(
            "Q-in-the-inner-loop", "Q is read once", ("probabilities(", "m.load(Q, i).free(); probabilities(")
        ),
        Mutant(
            "dO-in-the-inner-loop",
            "dO is read once",
            ("probabilities(", "do = m.load(dO, i, into=do); probabilities("),
        ),
        Mutant(
            "O-in-the-inner-loop",
            "O is read once",
            ("probabilities(", "m.load(O, i, (0, 1)).free(); probabilities("),
        ),
        Mutant(
            "dQ-stored-every-time",
            "dQ is written once",
            ("dq.add_matmul(s, k)", "dq.add_matmul(s, k); m.store(dq, dQ, i)"),
        ),
        Mutant(
            "D-stored-every-time",
            "D is written once",
            ("dq.add_matmul(s, k)", "dq.add_matmul(s, k); m.store(D_i, D, i)"),
        ),
        Mutant(
            "dQ-read-back",
            "dQ is never read",
            ("m.store(dq, dQ, i)", "m.store(dq, dQ, i); m.load(dQ, i, (0, 1)).free()"),
        ),
        Mutant(
            "L-in-the-inner-loop", TOTAL, ("probabilities(", "L_i = m.load(LSE, i, into=L_i); probabilities(")
        ),
        Mutant(
            "last-queries-skipped",
            RUNS,
            ("for i in m.blocks(N, Br)", "for i in list(m.blocks(N, Br))[: N // Br]"),
        ),
        Mutant(
            "last-keys-skipped",
            "dQ is exact",
            ("for j in m.blocks(N, Bc)", "for j in list(m.blocks(N, Bc))[: N // Bc]"),
        ),
    ),
    right=(rows_by_range, outputs_column_by_column),
    cheats=(
        (keys_outside, "dQ is written once"),
        (keys_outside, TOTAL),
        (zero_rows, "dQ is exact"),
        (zero_rows, LOADED),
        (all_of_the_library, OWN),
        (schedules.split_backward, OWN),
        (exchanged, "dQ is exact"),
        (dK_and_dV_exchanged, "dQ is exact"),
    ),
)

# ---------------------------------------------------------------------- 6E
OWN_SIDE, INPUTS_PAY = (
    "nobody pays for rows of its own side",
    "a load pays for the rows of the other side, a drop nothing",
)
EXITS_PAY, ANY_WALK = "an exit pays as an entry does", "any walk is charged what its events find"


def by_counting_visits(walk):
    """A row is there after an odd number of its events."""
    sides = ("q", "do", "dq"), ("k", "v", "dk", "dv")
    own = [next(word for word in event.split() if word in sides[0] + sides[1]) for event in walk]
    paid = 0
    for n, event in enumerate(walk):
        other = sides[own[n] in sides[0]]
        paid += 0 if "drop" in event else sum(own[:n].count(row) % 2 for row in other)
    return paid


def by_number_on_each_side(walk):
    """How many rows of each side are there, and no more."""
    there, paid = [0, 0], 0
    for event in walk:
        first, second = event.split()
        comes = first == "load" or second == "enters"
        row = second if first in ("load", "drop") else first
        side = 0 if row in ("q", "do", "dq") else 1
        paid += there[1 - side] * (first != "drop")
        there[side] += 1 if comes else -1
    return float(paid)


WALKS = Suite(
    id="6E",
    mutants=(
        Mutant("drops-pay", INPUTS_PAY, ('if not event.startswith("drop"):', "if True:")),
        Mutant(
            "exits-pay-nothing",
            EXITS_PAY,
            ('if not event.startswith("drop"):', 'if "drop" not in event and "leaves" not in event:'),
        ),
        Mutant("own-side", OWN_SIDE, ("keys if row in queries", "queries if row in queries")),
        Mutant("both-sides", OWN_SIDE, ("len(other & there)", "len(there)")),
        Mutant("all-rows-of-the-other-side", OWN_SIDE, ("len(other & there)", "len(other)")),
        Mutant("nothing-goes", EXITS_PAY, ("there ^= {row}", "there |= {row}")),
        Mutant("drops-change-nothing", INPUTS_PAY, ("        there ^=", "            there ^=")),
        Mutant("one-for-each-event", OWN_SIDE, ("paid += len(other & there)", "paid += 1")),
        Mutant("one-at-most", INPUTS_PAY, ("len(other & there)", "bool(other & there)")),
    ),
    right=(by_counting_visits, by_number_on_each_side),
    cheats=(
        (called("always_fourteen", lambda walk: 14), OWN_SIDE),
        (called("nothing", lambda walk: 0), ANY_WALK),
        (called("from_the_library", lambda walk: lesson06.charges(walk)), OWN),
        (called("read_off_the_picture", lambda walk: int(pair_residency(walk).title.split()[-1])), OWN),
    ),
)

SUITES = (TILE, FUSED, SWEEPS, QUERIES, WALKS)
