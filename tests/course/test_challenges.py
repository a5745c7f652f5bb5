"""Tests of open challenges: scores, rejected schedules, reports, and the best tiles of the library."""

import inspect
from contextlib import nullcontext

import numpy as np
import pytest

from iocourse import bounds, costs, exact, masks, run, schedules
from iocourse.course import challenge, exercise, progress
from iocourse.course.challenges import CHALLENGES, ORDER, Challenge, find_challenge, scoring
from iocourse.course.challenges.rolling_rows import rolling_rows
from iocourse.course.challenges.scoring import (
    fitting_schedules,
    judge_schedule,
    known_words,
    library_best,
    options_for,
)
from iocourse.course.exercise import exercises
from tests.mutation.references import build, exercise_source

ALL = {asked.id: asked for asked in CHALLENGES}
FORWARD, WINDOW = ALL["forward"], ALL["window"]
each_challenge = pytest.mark.parametrize("asked", ALL.values(), ids=list(ALL))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))


def mine(function):
    """Return the solution of the exercise whose function has this name."""
    ids = {one.function: one.id for one in exercises().values()}[function]
    return build(ids, exercise_source(ids, solved=True))


def f3(m, Q, K, V, *, Br=30, Bc=1):
    """FA-2 order with buffer reuse; the tests below insert errors into it."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:
                    s = q @ k.T
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


# ------------------------------------------------------------------ the library's best
def test_each_has_an_id_and_a_title_of_its_own_and_is_found_by_both():
    assert len(ALL) == len({asked.title for asked in CHALLENGES}) == len(CHALLENGES) >= 4
    for asked in CHALLENGES:
        assert find_challenge(asked.id) is find_challenge(asked.title) is asked


@each_challenge
def test_no_schedule_of_the_library_does_better_with_any_tiles_tried(asked):
    best, rng = library_best(asked).cost.total, np.random.default_rng(0)
    for choice in fitting_schedules(asked):
        told = options_for(choice.schedule, asked)
        for _ in range(300 if asked.mask(asked.N) is None else 60):
            near = {name: max(1, round(size * rng.uniform(0.8, 1.3))) for name, size in choice.tiles.items()}
            far = {name: int(4 ** rng.uniform(0, 7)) for name in choice.tiles}
            for tiles in (near, far):
                cost = choice.schedule.cost(asked.N, asked.d, **tiles, **told)
                assert cost.peak > asked.M or cost.total >= best


@each_challenge
def test_what_is_proved_stands_below_the_librarys_best(asked):
    least, _ = asked.lower_bound()
    assert 0 < least < library_best(asked).cost.total


def test_the_rival_schedules_are_in_the_field():
    fields = {
        asked.id: {choice.schedule.name for choice in fitting_schedules(asked)} for asked in ALL.values()
    }
    assert {"flash_optimal", "small_cache", "scores_stored", "scores_stored_tiled"} <= fields["forward"]
    assert {"split_backward", "score_gradients_stored", "weights_stored"} <= fields["backward"]
    assert (
        fields["window"] == fields["sparsity"] == {"block_sparse"}
    )  # the ring buffer of `window` does not fit
    assert not any("precomputed" in name for name in fields["backward"])  # P is not passed to schedules
    assert "square_tiling" not in fields["forward"]  # its exp overflows


@each_challenge
def test_the_referee_counts_the_librarys_best_as_its_closed_form_does(asked, monkeypatch):
    monkeypatch.setattr(exercise, "solutions_blocked", nullcontext)  # allow the library's own schedules
    best = library_best(asked)
    found = judge_schedule(asked, lambda *given, **told: best.schedule(*given, **told), best.tiles, seed=1)
    assert (found.words, found.refused) == (best.cost.total, "")


# ------------------------------------------------------------------ known schedules outside the library
beside_the_library = pytest.mark.parametrize("which", ["window", "sparsity"])


def test_where_a_schedule_is_known_beside_the_library():
    assert {asked.id for asked in ALL.values() if asked.known} == {"window", "sparsity"}
    assert all(bool(asked.known) == bool(asked.idea) for asked in ALL.values())


@beside_the_library
def test_the_referee_counts_what_is_printed_as_best_known_and_refuses_nothing(which, monkeypatch):
    monkeypatch.setattr(exercise, "solutions_blocked", nullcontext)
    asked = ALL[which]
    found = judge_schedule(asked, asked.known, {}, seed=1)
    assert (found.words, found.refused) == (known_words(asked), "")
    assert asked.lower_bound()[0] < found.words < 0.92 * library_best(asked).cost.total


@beside_the_library
def test_what_is_known_refuses_to_be_called_by_a_student(which):
    said = judge_schedule(ALL[which], ALL[which].known, {}, seed=1).refused
    assert "rolling_rows solves the exercise and cannot be called while a check runs" in said


def test_every_row_that_comes_in_an_order_comes_once():
    assert sorted(ORDER) == list(range(64))


@pytest.mark.parametrize(("rows", "kept"), [(1, 0), (2, 5), (3, 40), (9, 3)])
def test_known_rows_that_roll_have_the_values_of_attention_and_the_footprint_they_say(rows, kept):
    N, d, B = 50, 6, 6
    Q, K, V = np.random.default_rng(rows).standard_normal((3, N, d))
    tiles = np.array(masks.random(N, 5, 0.4, seed=3).tiles)
    tiles[4] = False
    for mask in (masks.BlockMask(N, tiles, 5, allow_empty=True), masks.Window(N, 7), masks.Causal(N)):
        M = rows * B * (2 * d + 2) + B + 2 * d * (kept + 1)
        done = run(rolling_rows, M=M, Q=Q, K=K, V=V, mask=mask, B=B, rows=rows, kept=kept)
        assert abs(done.O - exact.attention(Q, K, V, mask=mask.additive())).max() < 1e-12


# ------------------------------------------------------------------ schedules of students
@pytest.mark.parametrize(
    ("which", "function", "tiles", "cost"),
    [
        ("forward", "my_flash_optimal", {"Br": 30, "Bc": 1}, costs.flash_optimal),
        ("backward", "my_fused_backward", {"Br": 1, "Bc": 507}, costs.fused_backward),
        ("window", "my_block_sparse", {"Br": 64, "Bc": 64}, costs.block_sparse),
        ("sparsity", "my_block_sparse", {"Br": 32, "Bc": 32}, costs.block_sparse),
    ],
)
def test_words_are_those_of_the_closed_form_whatever_the_numbers(which, function, tiles, cost):
    asked = ALL[which]
    expected = cost(asked.N, asked.d, **tiles, **asked.options(asked.N)).total
    for seed in (1, 2):
        found = judge_schedule(asked, mine(function), tiles, seed)
        assert (found.words, found.refused) == (expected, "")
    assert found.called == f"{function}({', '.join(f'{name}={size}' for name, size in tiles.items())})"


def refusal(schedule, asked=FORWARD, **tiles):
    """Return the reason why a schedule is rejected, and fail if it is not."""
    found = judge_schedule(asked, schedule, tiles, seed=3)
    assert found.words == 0 and found.refused
    return found.refused


def spoilt(old, new, count=1):
    """Return `f3` after one replacement in its source."""
    source = inspect.getsource(f3)
    assert source.count(old) >= 1
    space = {"np": np, "schedules": schedules}
    exec(source.replace(old, new, count), space)
    return space["f3"]


def test_f3_itself_is_not_refused():
    assert judge_schedule(FORWARD, f3, {}, seed=3).words == costs.flash_optimal(2**16, 64, Br=30, Bc=1).total


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("q *= d**-0.5", "pass", "values equal exact attention: "),
        ("q *= d**-0.5", "q *= 0.125", "values equal exact attention: "),  # correct only for d = 64
        ("stats.normalise(o)", "o *= np.nan", "values equal exact attention: "),
        ("in m.blocks(N, Bc)", "in m.blocks((0, (N + 1) // 2), Bc)", "values equal exact attention: "),
        ("m.store(o, O, i)", "i.first and m.store(o, O, i)", "is incomplete"),
        ("Br=30", "Br=60", "fits in fast memory: "),
        ("return O", "return 7", "the schedule returned int"),
        ("return O", "return schedules.flash2(m, Q, K, V, Br=1, Bc=1)", "and cannot be called while"),
        ("return O", "raise NotImplementedError", "not written yet"),
        ("in m.blocks(N, Br)", "in list(m.blocks(N, Br))", "a block of a dry machine represents many blocks"),
        ("    for i in m.blocks(N, Br)", "    m.dry or m.load(Q, 0).free()\n    for i in m.blocks(N, Br)",
         "moves the same words in a dry run: on numbers 320 words, dry 256"),
    ],
)  # fmt: skip
def test_a_spoilt_schedule_is_told_why_in_one_line(old, new, said):
    assert said in refusal(spoilt(old, new))


def test_an_exercise_that_is_not_written_yet_is_asked_for_first():
    unsolved = {one.function: one.id for one in exercises().values()}["my_flash_optimal"]
    waiting = build(unsolved, exercise_source(unsolved, solved=False))
    assert refusal(waiting, Br=30, Bc=1).endswith(f"solve {unsolved} first")


def test_half_of_the_gradients_is_refused():
    whole = mine("my_fused_backward")
    half = refusal(lambda *given, **told: whole(*given, **told)[:2], ALL["backward"], Br=1, Bc=507)
    assert "expected 3 results" in half


def test_a_softmax_that_overflows_is_refused():
    def no_maximum(m, Q, K, V):
        O = m.new("O", Q.shape)
        for i in m.blocks(Q.shape[0], 1):
            with m.load(Q, i) as q, m.zeros(1, Q.shape[1]) as o, m.zeros(1, 1) as total:
                q *= Q.shape[1] ** -0.5
                for j in m.blocks(Q.shape[0], 1):
                    with m.load(K, j) as k, q @ k.T as s, m.load(V, j) as v:
                        np.exp(s, out=s)
                        total += s
                        o.add_matmul(s, v)
                o /= total
                m.store(o, O, i)
        return O

    assert refusal(no_maximum).startswith(f"{scoring.LARGE} neither overflow nor vanish: ")


def test_a_loop_without_end_is_refused():
    def endless(m, Q, K, V):
        while True:
            m.load(Q, 0).free()

    assert "loads and stores. Check for an infinite loop" in refusal(endless)


def outside(m, Q, K, V, *, mask=None):
    """Load every word once, compute outside the machine with NumPy on the tiles' data, store the result."""
    taken = []
    for array in (Q, K, V):
        rows = []
        for i in range(array.shape[0]):
            with m.load(array, i) as tile:
                rows.append(None if m.dry else tile._data.copy())
        taken.append(rows)
    O = m.new("O", Q.shape)
    result = None if taken[0][0] is None else attended(*map(np.concatenate, taken), mask)
    for i in range(Q.shape[0]):
        with m.zeros(1, Q.shape[1]) as o:
            if result is not None:
                o._data[:] = result[i]
            m.store(o, O, i)
    return O


def attended(Q, K, V, mask):
    """Return exact attention, for a schedule that cheats."""
    S = Q @ K.T * Q.shape[1] ** -0.5
    if mask is not None:
        n = np.arange(len(Q))
        S = np.where(mask.sees(n[:, None], n[None, :]), S, -np.inf)
    P = np.exp(S - S.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True) @ V


def blind(m, Q, K, V, *, mask):
    """As `outside`, but it fails in a dry run, where tiles have no data."""
    rows = [[m.load(array, i)._data.copy() for i in range(array.shape[0])] for array in (Q, K, V)]
    O = m.new("O", Q.shape)
    m.empty()
    for i, row in enumerate(attended(*map(np.concatenate, rows), mask)):
        with m.zeros(1, Q.shape[1]) as o:
            o._data[0] = row
            m.store(o, O, i)
    return O


def test_who_computes_outside_the_machine_moves_fewer_words_than_are_proved():
    small = Challenge(**{**vars(FORWARD), "N": 1024, "d": 16, "M": 256, "shapes": ((1, 16), (61, 16))})
    assert small.lower_bound()[0] > 4 * 1024 * 16
    assert "moves no fewer words than the lower bound: yours moves 65,536, but bound" in refusal(
        outside, small
    )


def test_who_computes_outside_the_machine_is_found_where_there_are_no_numbers():
    assert "NoneType" in refusal(blind, Challenge(**{**vars(WINDOW), "M": 10**6}))


def test_who_never_loads_an_input_is_refused():
    def from_slow_memory(m, Q, K, V):
        O = m.new("O", Q.shape)
        with m.zeros(*Q.shape) as o:
            if not m.dry:
                o._data[:] = attended(*(m._cells[array].data for array in (Q, K, V)), None)
            m.store(o, O, None)
        return O

    small = Challenge(**{**vars(FORWARD), "N": 50, "shapes": ((1, 64), (30, 64))})
    assert refusal(from_slow_memory, small).startswith("loads every word of its inputs: Q has 64 words")


def test_the_librarys_own_schedule_is_refused():
    assert "the library's own" in refusal(schedules.flash_optimal, Br=30, Bc=1)


# ------------------------------------------------------------------ reports and recorded results
def test_the_report_has_yours_the_librarys_best_and_what_is_proved(capsys):
    challenge("forward at M = d²", f3, Br=20, Bc=1)
    first = capsys.readouterr().out
    words, best = costs.flash_optimal(2**16, 64, Br=20, Bc=1).total, library_best(FORWARD)
    least, bound = bounds.lower_bound("forward", 2**16, 64, 64**2)
    assert first.splitlines()[0] == "forward at M = d²: N = 65,536, d = 64, M = 4,096"
    assert (
        "f3(Br=20, Bc=1)" in first and f"{words / 2**32:.4f} N²d²/M" in first and f"{words:,} words" in first
    )
    assert f"{best.schedule.title}(" in first and f"{best.cost.total:,} words" in first
    assert f"bound {bound}" in first and f"{least:,} words" in first
    assert first.endswith(
        f"Your schedule moves {words / best.cost.total:.4f} times the traffic of the library's best.\n"
    )
    challenge("forward", f3)
    assert f"Your best before: {words:,} words" in capsys.readouterr().out


def test_fewer_words_than_the_librarys_best_want_a_reader():
    said = scoring.challenge_report(
        FORWARD, scoring.ChallengeResult(library_best(FORWARD).cost.total - 5, "f()"), None
    )
    assert "5 words fewer than the library's best. Let another person review the schedule." in said


def test_where_more_is_known_than_the_library_has_yours_is_set_beside_that():
    known, best = known_words(WINDOW), library_best(WINDOW).cost.total
    said = scoring.challenge_report(WINDOW, scoring.ChallengeResult(2 * known, "f()"), None)
    assert f"  best known      {WINDOW.idea} " in said and f"{known:,} words" in said
    assert f"{best:,} words" in said and said.endswith(
        "Your schedule moves 2.0000 times the traffic of the best known."
    )
    fewer = scoring.challenge_report(WINDOW, scoring.ChallengeResult(known - 5, "f()"), None)
    assert "\n5 words fewer than the best known. Let another person review the schedule." in fewer


def test_whole_rows_have_a_line_of_their_own_in_the_backward_challenge():
    said = scoring.challenge_report(ALL["backward"], scoring.ChallengeResult(10**12, "f()"), None)
    assert "lower bound for complete rows, no score kept  bound E " in said


def test_the_fewest_words_are_kept_and_nothing_is_tried(capsys):
    challenge("forward", f3, Br=20)
    challenge("forward", f3, Br=30)
    challenge("forward", f3, Br=10)
    least = costs.flash_optimal(2**16, 64, Br=30, Bc=1).total
    entry = {"status": "seen", "attempts": 3, "hints": 0, "words": least}
    assert progress.load() == {"challenge forward": entry}
    table = progress.table(progress.load(), ("4.1",))
    assert table.endswith(f"\nchallenge forward: {least:,} words") and "exercises solved: 0 of 1" in table


def test_what_is_refused_is_not_kept(capsys):
    challenge("forward", spoilt("q *= d**-0.5", "pass"))
    said = capsys.readouterr().out
    assert "\n  refused: values equal exact attention: " in said and progress.load() == {}


def test_merged_progress_has_the_fewest_words():
    one, other = (
        {"challenge window": {"status": "seen", "attempts": n, "hints": 0, "words": 100 * n}} for n in (2, 3)
    )
    merged = progress.merge_progress(one, other)["challenge window"]
    assert (merged["words"], merged["attempts"]) == (200, 3)


@pytest.mark.parametrize("words", ["many", 0, True, None])
def test_words_that_are_none_make_a_file_unreadable(words):
    entry = {"status": "seen", "attempts": 1, "hints": 0, "words": words}
    with pytest.raises(progress.UsageError, match="words"):
        progress.parse(progress.dump({"challenge window": entry}), "progress.json")


def test_a_challenge_that_is_none_and_tiles_that_are_none_are_named():
    with pytest.raises(
        ValueError, match=r'challenge \'back\'. Available challenges: "backward" \(backward, b'
    ):
        challenge("back", f3)
    with pytest.raises(TypeError, match="Br must be an integer, got float"):
        challenge("forward", f3, Br=2.0)
    with pytest.raises(TypeError, match=r"K is passed by the challenge\. Pass only tile sizes as keyword"):
        challenge("forward", f3, K=3)


def test_an_interrupted_schedule_is_named_and_goes_on():
    def stopped(m, Q, K, V):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="interrupted in case N=1, d=64"):
        challenge("forward", stopped)
    assert progress.load() == {}
