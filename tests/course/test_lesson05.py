"""Tests of lessons 05 and 05b: their formulas, proof, statements and exercises."""

import re
from fractions import Fraction
from itertools import combinations, permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, pebbling, schedules
from iocourse.course import explore
from iocourse.course.checking import OWN, judge
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson05 import best_segment

LESSON, PROOF = Lesson("05_lower_bounds"), Lesson("05b_lower_bound_proof")


def says(number, *formulas):
    """Assert that the section, in part a or b, contains these formulas or words."""
    (LESSON if f"## {number} " in LESSON.text else PROOF).says(number, *formulas)


def solved(exercise_id):
    """Return the reference solution, from part a or b."""
    return (LESSON if exercise_id in ("5A", "5B") else PROOF).solved(exercise_id)


def f3(N, d, M):
    return schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total


# ---------------------------------------------------------------------- pebbles
def test_the_board_after_the_eighth_move_is_full():
    graph, names = pebbling.dot(2), {"measured": lambda *_, **__: None, "pebbling": pebbling}
    exec(LESSON.code('"load a1", "load b1", "compute p1"'), names | {"graph": graph}, names)
    after_eight = pebbling.replay(graph, names["moves"], 4)[8]
    assert after_eight.move == ("compute", "p2", None) and after_eight.red == {"a2", "b2", "p2", "p1"}
    with pytest.raises(pebbling.IllegalMove, match=r"move 8, compute p2: all M = 3 .*a2, b2, p1$"):
        pebbling.replay(graph, names["moves"], 3)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 6])
def test_a_fourth_pebble_saves_the_partial_sums_of_formula_5_1(d):
    graph = pebbling.dot(d)
    assert pebbling.optimum(graph, 4).cost == pebbling.compulsory(graph) == 2 * d + 1


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_the_game_of_5B_is_what_the_search_finds(n):
    row = pebbling.softmax_row(n)
    assert pebbling.cost_of(row, solved("5B")(n), 3) == pebbling.optimum(row, 3).cost


def test_what_travels_in_a_softmax_row():
    once = pebbling.optimum(pebbling.softmax_row(3), 3, recompute=False)
    kinds = [(move.kind, move.vertex[0]) for move in once.moves]
    assert kinds.count(("store", "e")) == kinds.count(("load", "e")) == 2
    moves = solved("5B")(5)
    assert not any(move.startswith(("store e", "load e")) for move in moves)
    assert sorted(moves.count(f"load x{j}") for j in range(1, 6)) == [1, 2, 2, 2, 2]


def test_the_smallest_attention_and_what_four_vertices_more_make():
    tiny = pebbling.attention(2, 2, fma=True)
    assert (len(tiny.inputs), len(tiny.outputs), pebbling.compulsory(tiny)) == (6, 2, 8)
    assert len(pebbling.dot(3)) - len(pebbling.dot(2)) == 4


# ---------------------------------------------------------------------- schedules of complete rows
@pytest.mark.parametrize(("N", "Br"), [(4, 1), (4, 2), (4, 4), (12, 3)])
def test_the_rows_counted_in_section_5_6_are_those_of_F3(N, Br):
    f3_rows, charged = LESSON.define(
        ("f3_rows", "charged"), {"product": product, "measured": lambda *_, **__: None}
    )
    charges, rows = charged(f3_rows(N, Br))
    assert charges == {"q": 0, "o": 0, "k": 2 * N * N, "v": 2 * N * N}
    assert rows * 7 == costs.flash_optimal(N, 7, Br=Br, Bc=1).total


@pytest.mark.parametrize("order", [*permutations("qokv")], ids="".join)
def test_in_any_order_of_loads_a_pair_has_four_charges(order):
    (charged,) = LESSON.define(("charged",), {"product": product, "measured": lambda *_, **__: None})
    charges, rows = charged([("in", (name, 0)) for name in order])
    assert (sum(charges.values()), rows) == (4, 4)
    assert bounds.min_pair_cost(bounds.row_schedules.FORWARD, bounds.row_schedules.ENTRIES).cost == 4


def test_the_formula_for_complete_rows_and_the_two_ratios():
    says("5.6", r"4N^2 \le \frac Wd \cdot \frac Md$, which is $W \ge 4N^2d^2/M$")
    says("5.6", r"4N^2 \le \frac Wd \cdot \frac{M + t}{d}", "distinct arrays")
    F5 = schedules.small_cache
    assert F5.cost(8192, 64, **F5.tiles(8192, 64, 1024)).total < bounds.theorem_A_rows(8192, 64, 1028)
    assert "rows" not in bounds.lower_bound("forward", 8192, 64, 58368)[1]


def test_in_the_first_step_with_both_rows_one_of_them_enters_and_no_entry_is_charged_too_often():
    """Line 2 of the proof for the whole class in section 5.6, on random runs with rows of one word."""
    rng, M, rows = np.random.default_rng(56), 6, [*product("qokv", range(3))]
    for _ in range(200):
        t, there, charged, together = int(rng.integers(1, 5)), set(), {}, set()
        for step in range(40):
            present, entered = set(there), set()
            for _ in range(t):
                if len(there) == M or (there and rng.random() < 0.3):
                    there.remove(sorted(there)[rng.integers(len(there))])
                row = rows[rng.integers(len(rows))]
                entered |= {row} - there
                there.add(row)
            present |= entered
            assert len(present) <= M + t
            sides = [[row for row in sorted(present) if row[0] in side] for side in ("qo", "kv")]
            for pair in {*product(*sides)} - together:
                late = next(row for row in pair if row in entered)
                charged[late, step] = charged.get((late, step), 0) + 1
                together.add(pair)
        assert sum(charged.values()) == len(together) and max(charged.values()) <= M + t
    says("5.6", "rows with at most $t$ words in total are loaded or started as zeros")
    assert "rows of at most t words are loaded or started" in bounds.BOUNDS["A_rows"].holds_for


# ---------------------------------------------------------------------- segments
def test_prediction_5_8a_is_the_maximum_over_all_choices():
    (most,) = PROOF.define(
        ("most_multiply_adds",),
        {"combinations": combinations, "np": np, "measured": lambda *_, **__: None, "explore": explore},
    )
    for words, side in ((1, 2), (2, 2), (3, 2), (4, 2), (2, 3)):
        masks = [
            np.isin(np.arange(side * side), chosen).astype(int).reshape(side, side)
            for chosen in combinations(range(side * side), words)
        ]
        counts = [int(np.einsum("il,lj,ij->", a, b, c)) for a, b, c in product(masks, repeat=3)]
        assert most(words, side) == max(counts) <= words**1.5
    assert most(4, 3) == 8


def test_the_picture_of_section_5_8():
    corner, apart = np.zeros((3, 3), int), np.eye(3, dtype=int)
    corner[:2, :2] = apart[0, 2] = 1
    drawn = [3 * [corner], [apart[::-1], apart, apart.T[::-1]]]
    assert all(words.sum() == 4 for choice in drawn for words in choice)
    assert [int(np.einsum("il,lj,ij->", *choice)) for choice in drawn] == [8, 3]


def test_formula_5_5_by_trying_everything():
    most = dict.fromkeys(range(13), 0)
    for choice in product((0, 1), repeat=12):
        a, b, c = np.array(choice).reshape(3, 2, 2)
        most[sum(choice)] = max(most[sum(choice)], int(np.einsum("il,lj,ij->", a, b, c)))
    assert all(count**2 * 27 <= R**3 for R, count in most.items())
    assert (most[3], most[12]) == (1, 8)  # case in which the limit is reached


@pytest.mark.parametrize(("queries", "keys", "d"), [(2, 2, 1), (3, 2, 1), (2, 3, 1), (2, 2, 2)])
def test_no_choice_of_words_allows_more_products_than_formula_5_7(queries, keys, d):
    """Every subset of the words of Q, K, V, O and scores, 2^20 subsets in the largest case."""
    sizes = [queries * d, keys * d, keys * d, queries * d, queries * keys]
    bits = np.arange(2 ** sum(sizes), dtype=np.uint32)
    has = [(bits >> n & 1).astype(bool) for n in range(sum(sizes))]
    ends = np.cumsum(sizes)
    q, k, v, o, s = (has[end - size : end] for end, size in zip(ends, sizes, strict=True))
    products = np.zeros(len(bits), dtype=np.uint8)
    for i, j in product(range(queries), range(keys)):
        made = np.logical_and.reduce([q[i * d + c] & k[j * d + c] for c in range(d)])
        for c in range(d):
            products += (s[i * keys + j] | made) & v[j * d + c] & o[i * d + c]
    words = np.bitwise_count(bits) if hasattr(np, "bitwise_count") else sum(h.astype(np.uint8) for h in has)
    most = [int(products[words == R].max()) for R in range(sum(sizes) + 1)]
    assert all(most[R] <= bounds.products_per_segment(R, d) for R in range(1, len(most)))
    assert most[-1] == queries * keys * d


def test_whole_rows_alone_form_the_products_of_section_5_8():
    whole, none = np.ones((64, 4), dtype=bool), np.zeros((64, 64), dtype=bool)
    assert solved("5C")(whole, whole, whole, whole, none) == (4 * 4 * 64) ** 2 / (16 * 4)


# ---------------------------------------------------------------------- Theorem A
@pytest.mark.parametrize(
    ("N", "d", "M"), [(200, 8, 259), (190, 6, 12), (64, 8, 64), (9, 17, 7), (3, 3, 1000)]
)
def test_the_best_segment_is_exact_up_to_rounding(N, d, M):
    exact = max(bounds.theorem_A(N, d, M, T=T) for T in range(1, 4 * N * d))
    low, high = best_segment(N, d, M, 1 - 1e-9)[0], best_segment(N, d, M, 1 + 1e-9)[0]
    assert low <= exact <= high
    assert solved("5D")(N, d, M) in (low, exact, high)


def test_the_best_T_is_M_plus_d_squared():
    d, M = 64, 58368
    best = max(range(1, 4 * M), key=lambda t: Fraction(t, (M + t + d * d) ** 2))
    assert best == M + d * d
    assert bounds.products_per_segment(M + best, d) / best == pytest.approx((M + d * d) / (4 * d))
    four_million = f3(2**22, d, 64 * d * d) / bounds.theorem_A(2**22, d, 64 * d * d + 4)
    assert 1 < four_million < 1.05


def test_formula_5_12_for_random_columns():
    """a_c accumulators and b_c words of V in each of d columns, of x and y rows."""
    rng = np.random.default_rng(12)
    for _ in range(500):
        d, x, y = rng.integers(1, 9, size=3)
        a, b = rng.integers(0, x + 1, size=d), rng.integers(0, y + 1, size=d)
        n_o, n_v = a.sum() + rng.integers(0, 5), b.sum() + rng.integers(0, 5)
        assert a @ b <= min(x * n_v, y * n_o) <= np.sqrt(x * y * n_v * n_o) * (1 + 1e-12)
    says("5.9", r"\sum_c a_c b_c \le \min(x, n_v,\; y, n_o) \le \sqrt{xy, n_v n_o} . \tag{5.12}")


def split(rng, R, parts):
    """Return `parts` random non-negative integers with a sum of at most R."""
    ends = np.sort(rng.integers(0, R + 1, size=parts))
    return np.diff(ends, prepend=0)


def test_each_step_to_formula_5_13_for_random_words():
    """Each inequality from the two kinds of products to F(R)."""
    rng, room = np.random.default_rng(13), 1 + 1e-12
    for _ in range(3000):
        d, R = int(rng.integers(1, 9)), int(rng.integers(1, 400))
        of_rows, n_v, n_o, n_s = split(rng, R, 4)
        x = int(rng.integers(0, of_rows // d + 1))
        y = of_rows // d - x
        z = (n_v + n_o) / 2
        products = np.sqrt(n_v * n_o) * (np.sqrt(x * y) + np.sqrt(n_s))
        left = z * ((R - 2 * z) / (2 * d) + np.sqrt(n_s) - n_s / (2 * d))
        middle = z * (R - 2 * z + d * d) / (2 * d)
        assert products <= left * room and left <= middle * room
        assert middle <= (R + d * d) ** 2 / (16 * d) * room
        assert left <= bounds.products_per_segment(R, d) * room
        if 3 * d * d > R and 2 * z >= R - d * d:  # no capacity for d² scores, so use the remaining words
            assert left <= z * np.sqrt(max(R - 2 * z, 0)) * room <= (R / 3) ** 1.5 * room**2


def test_the_products_of_theorem_B_for_random_words():
    rng = np.random.default_rng(14)
    for _ in range(1000):
        R = int(rng.integers(1, 400))
        n_q, n_k, n_v, n_o, n_s = split(rng, R, 5)
        products = np.sqrt(n_s * n_q * n_k) + np.sqrt(n_s * n_v * n_o)
        least = np.sqrt(n_s) * (R - n_s) / 2
        assert products <= least * (1 + 1e-12) and least <= (R / 3) ** 1.5 * (1 + 1e-12)
    says("5.10", r"\le \sqrt{n_s},(R - n_s)/2 \le (R/3)^{3/2}")


def test_the_segments_of_F3_in_section_5_9():
    """Words and products of every segment, for more sizes than the cell shows; the words add up to W."""
    names = {"product": product, "np": np, "bounds": bounds, "my_products": solved("5C")}
    names |= {"my_segments": solved("5E"), "attempt": lambda function, *given: function(*given)}
    f3_words, allowed = PROOF.define(("f3_words", "allowed"), names)
    for N, d, Br in ((8, 2, 4), (9, 3, 3), (12, 1, 6)):
        run, M = list(f3_words(N, d, Br)), 2 * Br * d + d
        assert sum(event == "in" for event, _ in run) == costs.flash_optimal(N, d, Br=Br, Bc=1).total
        assert allowed({word for _, word in run}, N, d) == N * N * d
        for T in range(1, 3 * M):
            for words in solved("5E")(run, T):
                assert len(words) <= M + T
                assert allowed(words, N, d) <= bounds.products_per_segment(M + T, d)


def test_the_lives_tried_in_section_5_9_pay_as_5_9_says():
    cell = PROOF.code("def after(n, away, entries, reads)")
    names = {"measured": lambda *_, **__: None, "print": lambda *_: None}
    exec(cell, names)
    assert names["fewest"] == {entries: entries - 1 for entries in range(1, 8)}
    says("5.9", "of up to 14 events there is at most one entry more than there are reads")


def test_the_lemma_of_step_2_on_random_histories():
    """(5.9) for random histories of the partial sums of one output: begin, read, drop, merge."""
    rng = np.random.default_rng(5)
    tight = 0
    for _ in range(300):
        there = stored = entries = reads = 0
        for kind in [*rng.choice(["begin", "read", "drop", "merge"], size=30), *["end"] * 40]:
            if kind == "end":  # bring everything together
                kind = "merge" if there > 1 else "read" if stored else "stop"
            if kind == "begin" or (kind == "read" and stored):
                entries += there == 0
                reads += kind == "read"
                stored -= kind == "read"
                there += 1
            elif kind == "drop" and there:
                there, stored = there - 1, stored + 1
            elif kind == "merge" and there > 1:
                there -= 1
        assert entries <= reads + 1
        assert there + stored <= 1
        tight += entries == reads + 1
    assert tight
    says("5.9", r"\text{entries} \le \text{reads} + 1 . \tag{5.9}", "section 5.14")
    says("5.14", r"r_0 + (1 + e) \le (r_0 + r_1) + 1 . $$")


# ---------------------------------------------------------------------- the curve and what is published
def test_which_bound_is_the_largest_where():
    assert 0.5 < bounds.compulsory(8192, 64) / bounds.theorem_A(8192, 64, 262148) < 2
    assert bounds.lower_bound("forward", 8192, 64, 3000)[1] == "B'"
    assert bounds.lower_bound("forward", 8192, 64, 16384, recompute=False)[1] == "B"


def test_prediction_5_7_follows_from_the_text_above_it():
    says("5.7", r"$B_r \approx M/(2d + 3)$ queries per block, and the traffic is $W \approx 2N^2d/B_r$")
    N, d = 2**32, 1024
    M = 1024 * d * d
    Br = schedules.flash_optimal.tiles(N, d, M)["Br"]
    assert Br == pytest.approx(M / (2 * d + 3), rel=1e-5)
    assert f3(N, d, M) == pytest.approx(2 * N * N * d / Br, rel=1e-3)


def test_four_is_the_exact_constant():
    N = 2**32
    for d in (64, 256, 1024):
        M = 1024 * d * d
        above, below = (words * M / (N * d) ** 2 for words in (f3(N, d, M), bounds.theorem_A(N, d, M + 4)))
        assert below < 4 < above == pytest.approx(4 * (1 + 1.5 / d), rel=1e-3)
        assert below == pytest.approx(4 * M / (M + d * d), rel=1e-3)


def test_the_map_of_section_5_7_has_three_schedules_and_two_bounds():
    shown = []
    spy = SimpleNamespace(traffic_map=lambda *sizes, **options: shown.append((sizes, options)))
    exec(LESSON.code("explore.traffic_map("), {"explore": spy})
    ((sizes, options),) = shown
    picture = explore.traffic_map(*sizes, **options)
    assert "Schedules: naive, flash1, flash_optimal. Lower bounds: compulsory, Theorem A. " in picture.alt
    d2 = 64**2
    for name, start, stop in (("row blocks", d2, 8192 * 64), ("compulsory", 8192 * 64, 2**22)):
        assert f"{name} from {start:,} to {stop:,}" in picture.alt


def test_best_tiles_make_F2_the_curve_of_F3():
    for M in (4096, 16384, 58368, 262144):
        f2 = schedules.flash2.cost(8192, 64, **schedules.flash2.tiles(8192, 64, M)).total
        assert f3(8192, 64, M) <= f2 <= 1.034 * f3(8192, 64, M)


def test_the_status_of_the_bounds():
    """The maxima of (5.13) are tested in tests/bounds."""
    says("5.9", r"$z\sqrt{R - 2z}$", r"largest at $z = R/3$")
    assert {bounds.BOUNDS[name].status for name in ("A_rows", "A", "B", "B'", "compulsory")} == {
        "proved here"
    }
    assert bounds.BOUNDS["saha_ye"].status == "published argument, constants ours"


def test_formulas_are_numbered_in_order_and_every_reference_leads_to_one():
    both = LESSON.text + PROOF.text
    tags = [int(number) for number in re.findall(r"\\tag\{5\.(\d+)\}", both)]
    assert tags == list(range(1, len(tags) + 1))
    assert {int(n) for n in re.findall(r"\(5\.(\d+)\)", both)} <= {*tags}


def test_sections_are_numbered_in_order_over_both_parts_and_every_reference_leads_to_one():
    both = LESSON.text + "\n" + PROOF.text
    numbers = [int(number) for number in re.findall(r"^## 5\.(\d+) ", both, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {int(n) for n in re.findall(r"[Ss]ections? 5\.(\d+)", both)} <= {*numbers}


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize("exercise_id", ["5A", "5B"])
def test_the_words_allowed_are_the_optimum_as_far_as_it_can_be_searched(exercise_id):
    for case in find(exercise_id).cases(np.random.default_rng(0)):
        graph, allowed = case.expected
        if len(graph) <= 19:
            assert pebbling.optimum(graph, 3).cost == allowed


def test_handing_back_a_bound_is_no_answer():
    assert judge(find("5D"), bounds.theorem_A, 0)[0][0] == OWN


def test_in_two_cases_of_5D_one_T_alone_is_best_and_it_is_prime():
    for N, d, M, prime in ((11, 4, 21, 41), (14, 4, 8, 19)):
        words = {T: T * int(N * N * d / bounds.products_per_segment(M + T, d)) for T in range(1, 4 * N * d)}
        assert [T for T in words if words[T] == max(words.values())] == [prime]
        assert f"N={N}, d={d}, M={M}" in {case.label for case in find("5D").cases(np.random.default_rng(0))}


def test_5D_asks_at_tiny_sizes_and_below_one_row():
    for seed in range(20):
        sizes = [tuple(case.inputs.values()) for case in find("5D").cases(np.random.default_rng(seed))]
        assert sum(max(size) <= 8 for size in sizes) >= 4
        N, d, M = sizes[-1]
        assert N <= 8 and M < d <= 8


def test_the_cases_of_5C_hold_what_their_names_say():
    for seed in range(50):
        for case in find("5C").cases(np.random.default_rng(seed)):
            q, k, s = (case.inputs[name] for name in "qks")
            (kind,) = case.tags
            whole = q.all(axis=1)[:, None] & k.all(axis=1)[None, :]
            assert whole.any() == (kind != "only scores at hand")
            assert s.any() == (kind not in ("only whole rows", "rows with a gap"))
            if kind == "rows with a gap":
                assert not q.all() and not k.all() and (q.sum(axis=1) >= q.shape[1] - 1).all()
            if kind in ("all kinds", "all words at hand"):
                assert (whole & s).any()


def test_5E_cuts_where_a_word_leaves_and_comes_back_and_where_a_run_just_fills_a_segment():
    for seed in range(20):
        cases = find("5E").cases(np.random.default_rng(seed))
        events = [[event for event, _ in case.inputs["run"]] for case in cases]
        full = [one.count("in") % case.inputs["T"] == 0 for one, case in zip(events, cases, strict=True)]
        assert any(full) and not all(full)
        assert any(case.expected == [] for case in cases)
        starts = [start for case in cases for start, _ in case.expected]
        assert sum(bool(start) for start in starts) > 10


def test_the_widget_has_a_cell_of_its_own_in_the_students_notebook():
    assert "explore.pebble_player(pebbling.softmax_row(3))" in LESSON.student_sources()
