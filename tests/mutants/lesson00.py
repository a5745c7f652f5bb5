"""What exercise 0A must refuse and accept."""

from harness import Mutant, Suite, called

from iocourse.bounds import compulsory
from iocourse.course.checking import OWN, RUNS

UNIT = "each word counts once, and words are counted, not bytes"
QUERIES = "a query counts in every array that has a row for it"
KEYS = "a key counts in every array that has a row for it"
NOTHING_ELSE = "nothing moves that is neither input nor output"
TWICE = "rows of twice the length are twice the words"
LEAST = "as many words as must move"
RETURN = "return words_Q + words_K + words_V + words_O"


def by_rows(Nq, Nk, d):
    return d * (Nq + Nq + Nk + Nk)


def by_shapes(Nq, Nk, d):
    total = 0
    for shape in ((Nq, d), (Nk, d), (Nk, d), (Nq, d)):
        total += shape[0] * shape[1]
    return total


SUITES = (
    Suite(
        "0A",
        mutants=(
            Mutant("output forgotten", QUERIES, (RETURN, "return words_Q + words_K + words_V")),
            Mutant("values forgotten", KEYS, (RETURN, "return words_Q + words_K + words_O")),
            Mutant("queries for keys", KEYS, ("Nq * d, Nk * d, Nk * d", "Nq * d, Nq * d, Nq * d")),
            Mutant("a row for each key in O", QUERIES, ("words_O = Nq * d", "words_O = Nk * d")),
            Mutant("scores moved", NOTHING_ELSE, (RETURN, RETURN + " + 2 * Nq * Nk")),
            Mutant("scores for output", NOTHING_ELSE, ("words_O = Nq * d", "words_O = Nq * Nk")),
            Mutant("rows for words", TWICE, ("words_O = Nq * d", "words_O = Nq")),
            Mutant("bytes", UNIT, (RETURN, "return 8 * (words_Q + words_K + words_V + words_O)")),
            Mutant("row statistics kept", LEAST, (RETURN, RETURN + " + Nq")),
            Mutant("a float", RUNS, (RETURN, "return float(words_Q + words_K + words_V + words_O)")),
            Mutant("a quotient", RUNS, (RETURN, RETURN + " / 1")),
            Mutant("printed, not returned", RUNS, (RETURN, "print(words_Q + words_K + words_V + words_O)")),
        ),
        right=(by_rows, by_shapes),
        cheats=(
            (called("scores_alone", lambda Nq, Nk, d: Nq * Nk), NOTHING_ELSE),
            (called("librarys_own", lambda Nq, Nk, d: compulsory(Nq, d)), OWN),
        ),
    ),
)
