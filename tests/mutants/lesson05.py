"""What is known about the exercises of lesson 05: mistakes, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import bounds, costs, pebbling, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises import lesson05

LIST = "returns a list of moves"
LEGAL = "every move is legal with M = 3 red pebbles"
STORED = "every result is stored"
DOT_WORDS = "no more than 4d − 1 words move"
ROW_WORDS = "no more than 3n − 1 words move"


# ---------------------------------------------------------------------- 5A
def dot_second_first(d):
    """The second product before the first, and a helper; ends with deletes that change nothing."""

    def form(l):
        return [f"load b{l}", f"load a{l}", f"compute p{l}", f"delete b{l}", f"delete a{l}"]

    so_far, moves = "p2", form(2)
    for l in [1, *range(3, d + 1)]:
        total = "s" if max(l, 2) == d else f"s_{max(l, 2)}"
        moves += ["store " + so_far, "delete " + so_far, *form(l), "load " + so_far, "compute " + total]
        moves += [f"delete p{l}", "delete " + so_far]
        so_far = total
    return (*moves, "store s", "delete s")


def dot_with_waiting_products(d):
    """The new product waits instead of the sum: as many words, in Move objects."""
    product_first = []
    for l in range(2, d + 1):
        product_first += [("load", f"a{l}"), ("load", f"b{l}"), ("compute", f"p{l}"), ("store", f"p{l}")]
        product_first += [
            (kind, f"{x}{l}") for kind, x in (("delete", "a"), ("delete", "b"), ("delete", "p"))
        ]
    moves = [("load", "a1"), ("load", "b1"), ("compute", "p1"), ("delete", "a1"), ("delete", "b1")]
    so_far = "p1"
    for l in range(2, d + 1):
        total = "s" if l == d else f"s_{l}"
        moves += [("load", f"p{l}"), ("compute", total), ("delete", so_far), ("delete", f"p{l}")]
        so_far = total
    return [pebbling.Move(*move) for move in [*product_first, *moves, ("store", "s")]]


def dot_with_four_pebbles(d):
    moves = ["load a1", "load b1", "compute p1", "delete a1", "delete b1"]
    so_far = "p1"
    for l in range(2, d + 1):
        total = "s" if l == d else f"s_{l}"
        moves += [f"load a{l}", f"load b{l}", f"compute p{l}", f"delete a{l}", f"delete b{l}"]
        moves += [f"compute {total}", f"delete p{l}", f"delete {so_far}"]
        so_far = total
    return [*moves, "store s"]


def dot_for_two_only(d):
    moves = "load a1,load b1,compute p1,delete a1,delete b1,store p1,delete p1,load a2,load b2,compute p2,"
    return (moves + "delete a2,delete b2,load p1,compute s,store s").split(",")


def dot_in_words_of_its_own(d):
    return [move.replace("delete", "drop") for move in dot_second_first(d)]


def dot_with_a_slide(d):
    return (*dot_second_first(d)[:4], "slide a2 to p2", *dot_second_first(d)[4:])


def nothing(n):
    return []


DOT = Suite(
    id="5A",
    mutants=(
        Mutant("factor-not-deleted", LEGAL, (', f"delete a{l}", f"delete b{l}"', ', f"delete a{l}"')),
        Mutant("sum-does-not-wait", LEGAL, ('f"store {so_far}", f"delete {so_far}"', "")),
        Mutant("stored-and-kept", LEGAL, ('f"store {so_far}", f"delete {so_far}"', 'f"store {so_far}"')),
        Mutant("sum-not-fetched", LEGAL, ('f"load {so_far}", ', "")),
        Mutant("last-product-forgotten", LEGAL, ("range(2, d + 1)", "range(2, d)")),
        Mutant("last-sum-misnamed", LEGAL, ('"s" if l == d else ', "")),
        Mutant("result-not-stored", STORED, ('[*moves, "store s"]', "moves")),
        Mutant("result-not-stored-words", STORED, ('"store s"', '"delete s"')),
        Mutant("products-stored-too", DOT_WORDS, ('"compute p{l}", ', '"compute p{l}", f"store p{l}", ')),
        Mutant("generator", LIST, ('[*moves, "store s"]', '(move for move in [*moves, "store s"])')),
    ),
    right=(dot_second_first, dot_with_waiting_products),
    cheats=(
        (called("dot_by_search", lambda d: list(pebbling.optimum(pebbling.dot(d), 3).moves)), OWN),
        (pebbling.dot, OWN),
        (dot_with_four_pebbles, LEGAL),
        (dot_for_two_only, LEGAL),
        (called("dot_as_one_text", lambda d: "\n".join(dot_second_first(d))), LIST),
        (called("dot_as_pairs", lambda d: [move.split() for move in dot_second_first(d)]), LIST),
        (dot_in_words_of_its_own, LEGAL),
        (dot_with_a_slide, LEGAL),
        (nothing, STORED),
    ),
)


# ---------------------------------------------------------------------- 5B
def row_backwards(n):
    """The second score first, the second pass from the back."""
    moves, so_far = ["load x2", "compute e2", "delete x2"], "e2"
    for j in [1, *range(3, n + 1)]:
        total = "l" if max(j, 2) == n else f"l_{max(j, 2)}"
        moves += [f"load x{j}", f"compute e{j}", f"delete x{j}", f"compute {total}", f"delete {so_far}"]
        last = j
        so_far = total
        if total != "l":
            moves += [f"delete e{j}"]
    for j in [last, *(j for j in range(n, 0, -1) if j != last)]:
        if j != last:
            moves += [f"load x{j}", f"compute e{j}", f"delete x{j}"]
        moves += [f"compute p{j}", f"store p{j}", f"delete e{j}", f"delete p{j}"]
    return tuple(moves)


def row_by_a_player(n):
    """Moves from a loop that keeps track of what is red."""
    moves, red = [], set()

    def do(kind, vertex):
        moves.append(pebbling.Move(kind, vertex))
        (red.discard if kind == "delete" else red.add)(vertex)

    def keep(*wanted):
        for vertex in sorted(red - set(wanted)):
            do("delete", vertex)

    sums = {1: "e1", n: "l"} | {j: f"l_{j}" for j in range(2, n)}
    for j in range(1, n + 1):
        do("load", f"x{j}")
        do("compute", f"e{j}")
        keep(sums[max(j - 1, 1)], f"e{j}")
        if j > 1:
            do("compute", sums[j])
            keep(sums[j], f"e{j}")
        keep(sums[j], f"e{n}")
    for j in range(n, 0, -1):
        if j < n:
            do("load", f"x{j}")
            do("compute", f"e{j}")
            keep("l", f"e{j}")
        do("compute", f"p{j}")
        do("store", f"p{j}")
        keep("l")
    return moves


def row_each_vertex_once(n):
    """Exponentials are stored and loaded again: the optimum of the one-shot game, 4n - 2 words."""
    moves, so_far = ["load x1", "compute e1", "delete x1"], "e1"
    for j in range(2, n + 1):
        total = "l" if j == n else f"l_{j}"
        moves += [f"load x{j}", f"compute e{j}", f"delete x{j}", f"compute {total}"]
        if j == 2:
            moves.append("store e1")
        if j < n:
            moves += [f"store e{j}", f"delete e{j}"]
        moves.append(f"delete {so_far}")
        so_far = total
    moves += [f"compute p{n}", f"store p{n}", f"delete p{n}", f"delete e{n}"]
    for j in range(1, n):
        moves += [f"load e{j}", f"compute p{j}", f"store p{j}", f"delete p{j}", f"delete e{j}"]
    return moves


LAST = 'moves += [f"compute p{n}", f"store p{n}", f"delete p{n}", f"delete e{n}"]'

DELETE = 'moves.append(f"delete e{j}")'
AGAIN = '[f"load x{j}", f"compute e{j}", f"delete x{j}"'

ROW = Suite(
    id="5B",
    mutants=(
        Mutant(
            "every-score-twice", ROW_WORDS, (LAST, 'moves.append(f"delete e{n}")'), ("(1, n)", "(1, n + 1)")
        ),
        Mutant("exponentials-stored", ROW_WORDS, (DELETE, f'moves.append(f"store e{{j}}"); {DELETE}')),
        Mutant("sum-stored", ROW_WORDS, (LAST, LAST + '; moves.append("store l")')),
        Mutant("scores-kept", LEGAL, (', f"delete x{j}"', "")),
        Mutant("old-sum-kept", LEGAL, (', f"delete {so_far}"]', "]")),
        Mutant("not-made-again", LEGAL, (AGAIN + ', f"compute p', '[f"compute p')),
        Mutant("weights-kept", LEGAL, ('f"delete p{j}", ', "")),
        Mutant("first-weight-forgotten", STORED, ("range(1, n)", "range(2, n)")),
        Mutant("last-weight-forgotten", STORED, (LAST, 'moves.append(f"delete e{n}")')),
        Mutant("last-sum-misnamed", LEGAL, ('"l" if j == n else ', "")),
        Mutant("nothing-returned", LIST, ("return moves", "pass")),
    ),
    right=(row_backwards, row_by_a_player),
    cheats=(
        (called("row_by_search", lambda n: pebbling.optimum(pebbling.softmax_row(n), 3).moves), OWN),
        (row_each_vertex_once, ROW_WORDS),
        (nothing, STORED),
    ),
)


# ---------------------------------------------------------------------- 5C
def products_one_by_one(q, k, v, o, s):
    count = 0
    for i in range(len(q)):
        for j in range(len(k)):
            if s[i, j] or (all(q[i]) and all(k[j])):
                count += sum(1 for c in range(q.shape[1]) if v[j, c] and o[i, c])
    return count


def remembered_by_shape(q, k, v, o, s):
    """The first count for these sizes, for ever."""
    return REMEMBERED.setdefault((q.shape, k.shape), products_by_einsum(q, k, v, o, s))


REMEMBERED = {}


def products_by_einsum(q, k, v, o, s):
    weights = np.maximum(s, np.outer(q.min(axis=1), k.min(axis=1)))
    return np.einsum("ij,jc,ic->", 1.0 * weights, v, o)


OLD = "a score at hand gives a product in every column that has value and output"
NEW = "a score can be made from two whole rows"
GAP = "a row that lacks a word makes no score"
ONCE = "a pair with a score that could also be made counts once"

PRODUCTS = Suite(
    id="5C",
    mutants=(
        Mutant("any-word-of-a-row", GAP, ("q.all", "q.any"), ("k.all", "k.any")),
        Mutant("one-whole-row-is-enough", GAP, ("[:, None] & k", "[:, None] | k")),
        Mutant("keys-not-asked", GAP, ("k.all(axis=1)", "k.any(axis=1)")),
        Mutant("no-scores-at-hand", OLD, ("(s | made)", "made")),
        Mutant("none-made", NEW, ("(s | made)", "s")),
        Mutant("counted-twice", ONCE, ("(s | made).astype(int)", "s.astype(int) + made")),
        Mutant("pairs-for-products", ONCE, ("(pairs @ v.astype(int) * o).sum()", "pairs.sum()")),
        Mutant("no-accumulators", OLD, (" * o", "")),
        Mutant("all-values-there", OLD, ("v.astype(int)", "np.ones(v.shape, dtype=int)")),
        Mutant("booleans-multiplied", OLD, (".astype(int)", "")),
        Mutant("counted-to-127", ONCE, (".astype(int)", ".astype(np.int8)")),
        Mutant("counted-to-255", ONCE, (".astype(int)", ".astype(np.uint8)")),
        Mutant("counted-in-half-precision", ONCE, (".astype(int)", ".astype(np.float16)")),
        Mutant("scores-written-over", RUNS, ("(s | made)", "np.logical_or(s, made, out=s)")),
    ),
    right=(products_one_by_one, products_by_einsum),
    cheats=(
        (lambda q, k, v, o, s: q.size * len(k), NEW),
        (remembered_by_shape, ONCE),
        (lambda q, k, v, o, s: bounds.products_per_segment(q.size, q.shape[1]), OWN),
        (lambda q, k, v, o, s: lesson05._products(q, k, v, o, s), OWN),
    ),
)


# ---------------------------------------------------------------------- 5D
def bound_at_once(N, d, M):
    """All T in one array."""
    R = M + np.arange(1.0, 4 * N * d + 1)
    F = np.where(3 * d**2 <= R, (R + d**2) ** 2 / (16 * d), (R / 3) ** 1.5)
    return ((R - M) * np.floor(N**2 * d / F)).max()


def bound_by_segments(N, d, M):
    """For each number of full segments the longest T; F is turned round."""
    best, h = 0, 1
    while True:
        room = N * N * d / h  # products of one segment
        R = int(4 * (room * d) ** 0.5 - d * d + 1e-9)
        if 3 * d * d > R:
            R = int(3 * room ** (2 / 3) + 1e-9)
        if R <= M:
            return best
        best, h = max(best, h * (R - M)), h + 1


def bound_with_the_library_s_F(N, d, M):
    return max(T * (N * N * d // bounds.products_per_segment(M + T, d)) for T in range(1, 4 * N * d))


def bound_evaluated_for_every_T(N, d, M):
    return max(bounds.theorem_A.evaluate(N, d, M, T=T) for T in range(1, 4 * N * d))


def bound_from_the_library_s_segments(N, d, M):
    return max(T * bounds.segments.segments_A(N * N * d, M + T, d) for T in range(1, 4 * N * d))


def every_other_T(N, d, M):
    return max(T * full_segments(N, d, M + T) for T in range(2, 4 * N * d, 2))


def full_segments(N, d, R):
    return int(N * N * d // ((R + d * d) ** 2 / (16 * d) if 3 * d * d <= R else (R / 3) ** 1.5))


def until_it_falls(N, d, M):
    words = 0
    for T in range(1, 4 * N * d):
        more = T * full_segments(N, d, M + T)
        if more < words:
            break
        words = more
    return words


def until_a_hundred_fall(N, d, M):
    most, T, last = 0, 1, 0
    while T - last <= 100:
        words = T * full_segments(N, d, M + T)
        most, last = (words, T) if words > most else (most, last)
        T += 1
    return most


def one_T(N, d, M):
    R = 2 * M + d * d
    return (M + d * d) * (16 * N * N * d * d // (R + d * d) ** 2)


def remembered_line(N, d, M):
    return max(0, 4 * (N * d) ** 2 // (M + d * d) - (M + d * d))


def words_of_F3(N, d, M):
    return costs.flash_optimal(N, d, Br=max(1, min(N, (M - d) // (2 * d + 3))), Bc=1).total


def tiles_of_F3(N, d, M):
    return schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total


NUMBER = "returns a number of words"
ABOVE = "never claims more than Theorem A proves"
LARGE, SMALL = "for M ≥ d² no T gives more", "for M < d² no T gives more"
WHOLE = "int(N * N * d // F(M + T))"

BOUND = Suite(
    id="5D",
    mutants=(
        Mutant("part-of-a-segment", ABOVE, (WHOLE, "(N * N * d / F(M + T))")),
        Mutant("rounded-up", ABOVE, (WHOLE, "-int(-N * N * d // F(M + T))")),
        Mutant("start-forgotten", ABOVE, ("F(M + T)", "F(T)")),
        Mutant("first-case-for-all", SMALL, ("if 3 * d * d <= R else (R / 3) ** 1.5", "")),
        Mutant("second-case-for-all", ABOVE, ("3 * d * d <= R", "False")),
        Mutant("M-for-T", ABOVE, ("max(most, T *", "max(most, (M + T) *")),
        Mutant("up-to-M", LARGE, ("while F", "while T < M and F")),
        Mutant("up-to-M-below", SMALL, ("while F", "while T < M and F")),
        Mutant("powers-of-two", LARGE, ("T += 1", "T *= 2")),
        Mutant("the-last-one", SMALL, ("max(most, T *", "(T *")),
        Mutant("pairs-for-products", LARGE, ("N * N * d", "N * N")),
        Mutant("segments-counted", LARGE, (f"T * {WHOLE}", WHOLE)),
        Mutant("a-segment-that-just-fills", LARGE, ("while F(M + T) <=", "while F(M + T) <")),
        Mutant("from-two-on", SMALL, ("most, T = 0, 1", "most, T = 0, 2")),
        Mutant("words-for-products", LARGE, ("while F(M + T) <=", "while M + T <=")),
        Mutant("memory-for-a-row", SMALL, ("<= N * N * d:", "<= N * N * M:")),
        Mutant("border-of-F-by-a-sum", SMALL, ("3 * d * d <= R", "(3 + d) * d <= R")),
        Mutant("border-of-F-too-early", SMALL, ("3 * d * d <= R", "2 * d * d <= R")),
        Mutant("in-words", NUMBER, ("return most", "return str(most)")),
        Mutant("nothing-returned", NUMBER, ("return most", "pass")),
    ),
    right=(bound_at_once, bound_by_segments),
    cheats=(
        (called("bound_of_the_library", lambda N, d, M: bounds.theorem_A(N, d, M)), OWN),
        (bound_with_the_library_s_F, OWN),
        (bound_evaluated_for_every_T, OWN),
        (bound_from_the_library_s_segments, OWN),
        (called("bound_from_the_check", lambda N, d, M: lesson05.best_segment(N, d, M, 1.0)[0]), OWN),
        (every_other_T, LARGE),
        (every_other_T, SMALL),
        (until_it_falls, LARGE),
        (until_a_hundred_fall, LARGE),
        (one_T, LARGE),
        (remembered_line, LARGE),
        (remembered_line, SMALL),
        (words_of_F3, ABOVE),
        (tiles_of_F3, OWN),
        (called("compulsory", lambda N, d, M: 4 * N * d), ABOVE),
        (called("no_number", lambda N, d, M: None), NUMBER),
    ),
)


# ---------------------------------------------------------------------- 5E
def segments_by_slices(run, T):
    """Where each full segment ends, then what each piece of the run sees."""
    ends = [n + 1 for n, (event, _) in enumerate(run) if event == "in"][T - 1 :: T]
    there, cut, start = frozenset(), [], 0
    for end in ends:
        piece = run[start:end]
        cut.append(there | {word for _, word in piece})
        for event, word in piece:
            there = there | {word} if event == "in" else there - {word}
        start = end
    return tuple(cut)


def segments_from_stays(run, T):
    """For each word its stays, in segments: from the one in which it came to the one in which it left."""
    came, since, stays = 0, {}, []
    for event, word in run:
        if event == "in":
            since[word] = came // T
            came += 1
        else:
            stays.append((word, since.pop(word), came // T))
    stays += [(word, first, came // T) for word, first in since.items()]
    return [{word for word, first, last in stays if first <= n <= last} for n in range(came // T)]


SETS = "returns a list of sets"
FULL = "a segment ends with its T-th word, and full ones alone count"
COMES = "what comes in during a segment belongs to it"
START = "what is there when a segment begins belongs to it"
LEFT = "what left before it began does not belong to it"
RETURN = "return segments"

CUT = Suite(
    id="5E",
    mutants=(
        Mutant("start-forgotten", START, ("words, came = set(there), 0", "words, came = set(), 0")),
        Mutant("what-is-left-at-the-end", COMES, ("segments.append(words)", "segments.append(set(there))")),
        Mutant("never-emptied", LEFT, ("words, came = set(there), 0", "words, came = set(words), 0")),
        Mutant("nothing-ever-leaves", LEFT, ("there.remove(word)", "pass")),
        Mutant("the-rest-too", FULL, (RETURN, "return [*segments, words]")),
        Mutant("leaving-counts", FULL, ("there.remove(word)", "there.remove(word); came += 1")),
        Mutant("not-counted-anew", FULL, ("words, came = set(there), 0", "words = set(there)")),
        Mutant("one-word-too-late", FULL, ("came == T", "came == T + 1")),
        Mutant("different-words-counted", FULL, ("came == T", "len(words) == T")),
        Mutant("fast-memory-handed-on", COMES, ("words, came = set(there), 0", "words, came = there, 0")),
        Mutant("sizes", SETS, ("segments.append(words)", "segments.append(len(words))")),
        Mutant("generator", SETS, (RETURN, "return (one for one in segments)")),
    ),
    right=(segments_by_slices, segments_from_stays),
    cheats=(
        (called("nothing_at_all", lambda run, T: []), FULL),
        (called("sets_of_nothing", lambda run, T: [set()] * (sum(e == "in" for e, _ in run) // T)), COMES),
        (called("the_check_s_own", lambda run, T: [a | b for a, b in lesson05._segments(run, T)]), OWN),
    ),
)

SUITES = (DOT, ROW, PRODUCTS, BOUND, CUT)
