"""A fault of one kind of cases is read first: softmax without its maximum is led to the large logits."""

import pytest
from harness import Mutant, drawn, mutate

from iocourse.course.checking import failed_properties, judge, read_first, report
from iocourse.course.exercise import FirstCause, find

FINITE = "is finite for large logits"
LARGE = "scores of ±10,000 neither overflow nor vanish"
FIRST_ROW = "with the causal mask, the first query attends to the first key only"
OWN_SOFTMAX = ("my_softmax(S) @ V", "np.exp(S) / np.exp(S).sum(axis=-1, keepdims=True) @ V")
OWN_WEIGHTS = ("P = my_softmax(S)", "P = np.exp(S); P /= P.sum(axis=-1, keepdims=True)")
NO_MAXIMUM = ("stats.update(s, o)", "np.exp(s, out=s); stats.l[:] += s.sum(axis=1)")
FAULTS = {  # by exercise: the property to read first, and the edits of the reference
    "1A": (FINITE, ("np.exp(S - S.max(axis=-1, keepdims=True))", "np.exp(S)")),
    "1B": (FINITE, OWN_SOFTMAX),
    "1B, zeros for masked scores": (FIRST_ROW, ("bool), S, -np.inf)", "bool), S, 0.0)")),
    "1D": (FINITE, OWN_WEIGHTS),
    "4A": (LARGE, NO_MAXIMUM),
    "4B": (LARGE, NO_MAXIMUM),
    "6B": (LARGE, ("probabilities(s, L_i)", "np.exp(s, out=s); s /= np.exp(L_i)[:, None]")),
    "6D": (LARGE, ("probabilities(s, L_i)", "np.exp(s, out=s); s /= np.exp(L_i)[:, None]")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_line_to_read_first_names_the_kind_of_cases(fault):
    exercise, (first, edit) = find(fault.split(",")[0]), FAULTS[fault]
    seed = drawn(fault)
    verdicts = judge(exercise, mutate(exercise.id, Mutant(fault, first, edit)), seed)
    failed = failed_properties(verdicts)
    assert isinstance(failed[first], FirstCause) and read_first(exercise, failed) == first
    lines = [line for line in report(exercise, verdicts, seed).splitlines() if "  FAILS  " in line]
    assert len(failed) > 1 and [line.partition(": ")[0].strip() for line in lines] == [f"FAILS  {first}"]


def test_the_sum_of_all_words_follows_the_words_of_an_array_and_not_the_peak():
    exercise, q = find("4E"), "m.load(Q, i) as q"
    edits = (
        (f", {q}:", ":"),
        ("with m.load(K, j) as k:", f"with {q}, m.load(K, j) as k:"),
        ("v.free()\n", "pass\n"),
    )
    verdicts = judge(exercise, mutate("4E", Mutant("unrepaired", "Q is read once", *edits)), drawn("4E"))
    lines = report(exercise, verdicts, 0).splitlines()
    assert any(line.startswith("  FAILS  fits in the footprint") for line in lines)
    after = next(n for n, line in enumerate(lines) if line.startswith("  FAILS  Q is read once")) + 1
    assert lines[after].strip() == "and with it: moves no more words than (4.3)"
