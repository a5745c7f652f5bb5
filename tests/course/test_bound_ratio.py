"""The ratio of a solved schedule's traffic to a lower bound."""

import re
from dataclasses import replace

import numpy as np
import pytest
from lesson_source import ROOT, Lesson

from iocourse import bounds, costs, masks
from iocourse.course import bound_ratio, check
from iocourse.course.exercise import NO_LIMIT, Case, exercises, run_schedule
from iocourse.machine import FREE_REGISTERS
from tests.mutation.references import build, exercise_source

BY_FUNCTION = {exercise.function: exercise for exercise in exercises().values()}
N, d, side = 2**20, 64, 128 * 255
causal, window = masks.causal(8192, 512), masks.Window(256, 8)

# Words of each schedule at the sizes of its line, and its bound, computed independently.
KNOWN = {
    "my_matmul": (costs.matmul(side, side, side, bm=255, bn=255), "product", (side, side, side)),
    "my_flash2": (costs.flash2(N, d, Br=2016, Bc=1), "forward", (N, d)),
    "my_flash1": (costs.flash1(N, d, Br=1, Bc=2016), "forward", (N, d)),
    "my_flash_optimal": (costs.flash_optimal(N, d, Br=2016, Bc=1), "forward", (N, d)),
    "my_fused_backward": (costs.fused_backward(N, d, Br=1, Bc=1008), "backward", (N, d)),
    "my_scores_tile": (costs.matmul(31744, 31744, 512, bm=31, bn=31), "product", (31744, 31744, 512)),
    "my_small_cache": (costs.small_cache(2**16, 1024, Br=64, Bc=64, Bd=64), "forward", (2**16, 1024)),
    "my_scores_stored": (costs.scores_stored(N, 256, Br=252), "forward", (N, 256)),
    "my_scores_stored_tiled": (
        costs.scores_stored_tiled(N, 256, Br=83, Bo=167, Bd=128),
        "forward",
        (N, 256),
    ),
    "my_block_sparse": (
        costs.block_sparse(8192, 64, mask=causal, Br=512, Bc=32),
        "forward",
        (8192, 64, causal),
    ),
    "my_window": (costs.window(256, 64, w=8), "forward", (256, 64, window)),
}
# Schedules that compute neither a product of two matrices nor an exact pass of attention have no bound.
WITHOUT = {"my_centre", "my_gram", "my_lse", "my_queries_gradient", "my_keys_sweep", "my_low_rank"}
WITHOUT |= {"my_two_sweeps", "my_columns"}


def solved(exercise):
    """Return the solution of an exercise."""
    return build(exercise.id, exercise_source(exercise.id, solved=True))


def line_for(exercise, schedule):
    """Return the sentence after "Solved." for this schedule."""
    small = exercise.cases(np.random.default_rng(0))[0]
    return bound_ratio.bound_ratio_message(exercise.comparison, exercise.run_case, schedule, small)


def numbers(line):
    """Parse a line into (ratio, name of the bound, words moved, words of the bound, words of fast memory)."""
    found = re.fullmatch(
        r"Your schedule moves (.*) times the lower bound \((?:Theorem|bound) ([^ ,)]*)(?:, section .*)?\):\n"
        r"  (.*) words compared with ([0-9,]*), for .* = .*, with (.*) words of fast memory\.",
        line,
    )
    ratio, bound, *words = found.groups()
    return float(ratio), bound, *(int(number.replace(",", "")) for number in words)


def test_each_schedule_of_an_exercise_is_set_beside_a_bound_or_is_known_to_have_none():
    judged_by_words = {
        name
        for name, exercise in BY_FUNCTION.items()
        if any(case.budget and case.M for case in exercise.cases(np.random.default_rng(0)))
        and exercise.run_case.__name__ in ("run_schedule", "<lambda>")
    }
    with_line = {name for name, exercise in BY_FUNCTION.items() if exercise.comparison}
    assert with_line == {*KNOWN, "my_whole_backward"}
    assert judged_by_words - with_line == WITHOUT


@pytest.mark.parametrize("name", KNOWN)
def test_the_number_is_the_words_over_the_bound(name):
    cost, kind, sizes = KNOWN[name]
    ratio, bound, words, least, M = numbers(line_for(BY_FUNCTION[name], solved(BY_FUNCTION[name])))
    assert (words, M) == (cost.total, cost.peak)
    if kind == "product":
        assert (least, bound) == (bounds.matmul(*sizes, M + FREE_REGISTERS), "matmul")
    else:
        mask = sizes[2] if len(sizes) > 2 else None
        assert (least, bound) == bounds.lower_bound(kind, *sizes[:2], M, mask=mask, given_weights=False)
    assert ratio == round(words / least, 2) >= 1


@pytest.mark.parametrize(("bound", "section"), bound_ratio.EXPLAINED.items())
def test_the_section_named_beside_a_bound_explains_it(bound, section):
    lessons = map(Lesson, sorted(path.stem for path in (ROOT / "solutions").glob("*.py")))
    (text,) = (lesson.section(section) for lesson in lessons if f"## {section} " in lesson.text)
    assert f"Theorem {bound.replace(chr(39), '′')}" in text or f"bound `{bound}`" in text


def test_a_backward_pass_where_all_fits_moves_nothing_twice():
    exercise = BY_FUNCTION["my_whole_backward"]
    ratio, bound, words, least, _ = numbers(line_for(exercise, solved(exercise)))
    assert (words, least, bound) == ((7 * 64 + 1) * 1024, 7 * 64 * 1024, "compulsory_backward")
    assert ratio == 1.0


def test_a_check_says_it_when_solved_and_only_then(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    exercise = BY_FUNCTION["my_flash2"]
    source = exercise_source(exercise.id, solved=True)
    check(exercise.id, build(exercise.id, source), seed=1)
    said = capsys.readouterr().out
    assert "Solved.\nYour schedule moves 1.04 times the lower bound (Theorem A, section 4.7):\n" in said
    assert "m.store(o, O, i)" in source
    check(exercise.id, build(exercise.id, source.replace("m.store(o, O, i)", "o *= 2; m.store(o, O, i)")))
    assert "lower bound" not in capsys.readouterr().out


# ------------------------------------------------------------------ schedules that a dry run does not count
def by_range(m, Q, K, V, *, Br, Bc):
    """FA-2 order without m.blocks: a million keys, one per iteration."""
    n = Q.shape[0]
    O = m.new("O", Q.shape)
    for a in range(0, n, Br):
        i = (a, min(n, a + Br))
        with m.load(Q, i) as q, m.zeros(i, Q.shape[1]) as o, m.row_stats(i) as stats:
            q *= Q.shape[1] ** -0.5
            for b in range(0, n, Bc):
                j = (b, min(n, b + Bc))
                with m.load(K, j) as k:
                    s = q @ k.T
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def by_number(m, Q, K, V, *, Br, Bc):
    """FA-2 order that reloads its first keys in every block with an odd start, so that blocks differ."""
    for i in m.blocks(Q.shape[0], Br):
        if i.start % 2:
            m.load(K, 0).free()
    return by_range(m, Q, K, V, Br=Br, Bc=Bc)


def test_a_schedule_that_a_dry_run_does_not_count_gets_a_sentence_in_place_of_the_number():
    exercise = BY_FUNCTION["my_flash2"]
    said = line_for(exercise, by_range)
    assert said.startswith("No comparison with the lower bound for N = 1,048,576, d = 64, ")
    assert "m.blocks" in said


def test_a_dry_count_that_differs_from_a_real_one_is_not_told():
    sizes = {"Q": (64, 4), "K": (64, 4), "V": (64, 4), "Br": 3, "Bc": 8}
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((64, 4)) for name in "QKV"}
    small = Case("small", {**sizes, **arrays}, M=NO_LIMIT)
    told = replace(bound_ratio.attention_comparison("forward", N=64, d=4), inputs=sizes)
    right = bound_ratio.bound_ratio_message(told, run_schedule, by_range, small)
    wrong = bound_ratio.bound_ratio_message(told, run_schedule, by_number, small)
    assert right.startswith("Your schedule moves") and wrong.startswith(
        "No comparison with the lower bound for N"
    )


def test_fewer_words_than_the_bound_are_called_another_class():
    def cheap(m, Q, K, V):
        O = m.new("O", Q.shape)
        with m.zeros(*Q.shape) as o:
            m.store(o, O, None)
        return O

    told = bound_ratio.attention_comparison("forward", N=64, d=4)
    small = Case("small", told.inputs, M=NO_LIMIT, machine={"dry": True})
    said = bound_ratio.bound_ratio_message(told, run_schedule, cheap, small)
    assert (
        said.startswith("Your schedule moves 256 words for N")
        and "(bound compulsory) is 1,024, but it" in said
    )
