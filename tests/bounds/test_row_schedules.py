"""The case analysis behind Theorems A_rows and E, and an attack on the lemma that turns 12 into 14."""

from dataclasses import replace
from itertools import product
from time import thread_time

import numpy as np
import pytest

from iocourse.bounds import min_pair_cost
from iocourse.bounds.row_schedules import (
    BACKWARD,
    ENTRIES,
    FORWARD,
    HALVES,
    LOADS_AND_EXITS,
    WITH_EDGES,
    QueryKeyPair,
    State,
    _moves,
)
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked


@pytest.mark.parametrize(
    ("pair", "charged", "least"),
    [
        (FORWARD, ENTRIES, 4),
        (BACKWARD, ENTRIES, 10),
        (BACKWARD, LOADS_AND_EXITS, 12),
        (BACKWARD, HALVES, 13),
        (BACKWARD, WITH_EDGES, 14),
    ],
    ids=["forward", "entries alone", "loads and exits", "halves", "with edges"],
)
def test_the_least_that_a_pair_pays(pair, charged, least):
    assert min_pair_cost(pair, charged).cost == least


def test_all_of_it_takes_less_than_two_seconds_of_a_core():
    min_pair_cost.__wrapped__.__globals__["_search"].cache_clear()
    start = thread_time()
    for charged in (LOADS_AND_EXITS, HALVES, WITH_EDGES):
        min_pair_cost(BACKWARD, charged)
    assert thread_time() - start < 2


@pytest.mark.parametrize("kind", ["load", "enter", "leave"])
def test_every_kind_of_event_counts(kind):
    free = replace(WITH_EDGES, **{kind: 0})
    assert min_pair_cost(BACKWARD, free).cost < 14


@pytest.mark.parametrize("task", range(3))
def test_every_task_counts(task):
    tasks = BACKWARD.tasks[:task] + BACKWARD.tasks[task + 1 :]
    assert min_pair_cost(replace(BACKWARD, tasks=tasks), WITH_EDGES).cost < 14


def paid(pair, charged, walk):
    """Return the charge of a walk of events without edges, counted independently, and the tasks it does."""
    there, cost, done = set(), 0, set()
    for event in walk:
        first, second = event.split()
        row, kind = (first, second) if first in pair.rows else (second, first)
        rate = {"load": "load", "drop": "drop", "enters": "enter", "leaves": "leave"}[kind]
        assert (row in there) == (kind in ("drop", "leaves"))
        there ^= {row}
        cost += getattr(charged, rate) * len(pair.opposite(row) & there)
        done |= {task for task in pair.tasks if task <= there}
    return cost / 2, done


@pytest.mark.parametrize("charged", [ENTRIES, LOADS_AND_EXITS, HALVES], ids=["entries", "exits", "halves"])
@pytest.mark.parametrize("pair", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_the_walk_does_all_tasks_and_pays_what_it_says(pair, charged):
    found = min_pair_cost(pair, charged)
    assert paid(pair, charged, found.walk) == (found.cost, set(pair.tasks))


def with_edges(walk):
    """Return the charge of a walk with edges, as computed by the search."""
    state, cost = State(frozenset(), frozenset(BACKWARD.tasks)), 0
    for event in walk:
        price, state = next((p, s) for e, p, s in _moves(BACKWARD, WITH_EDGES, state) if e == event)
        cost += price
    return cost / 2


WAITING = ["load q", "load do", "load k", "load v", "dq enters", "dq leaves"]


@pytest.mark.parametrize(
    ("then", "edges"),
    [
        (["dk enters", "dv enters"], 2),
        (["drop v", "dk enters"], 1),  # k has been resident
        (["drop k", "drop v", "load k", "dk enters"], 0),
        (["drop v", "load v", "drop k", "dk enters"], 0),
        (["drop q", "load q", "dk enters", "dv enters"], 0),
        (["drop do", "load do", "dk enters", "dv enters"], 0),
        (["dk enters", "dk leaves", "dk enters"], 1),  # only the first of a joint residency
        (["dk enters", "drop q", "dk leaves", "load q", "dq enters", "dq leaves", "dk enters"], 2),
        (["dq enters", "dk enters"], 1),
    ],
)
def test_an_edge_is_made_where_q_do_and_a_key_have_waited(then, edges):
    walk = [*WAITING, *then]
    assert with_edges(walk) == paid(BACKWARD, WITH_EDGES, walk)[0] + edges


def test_an_edge_asks_for_q_and_do_where_dq_leaves():
    walk = [*WAITING[:-1], "drop do", "dq leaves", "load do", "dk enters"]
    assert with_edges(walk) == paid(BACKWARD, WITH_EDGES, walk)[0]


def test_the_two_sweeps_of_B4_pay_14_and_one_sweep_16():
    dq_plain = ["load q", "load do", "dq enters", "load k", "load v", "drop k", "drop v"]
    dkdv_plain = ["load k", "load v", "dk enters", "dv enters", "load q", "load do", "drop q", "drop do"]
    split = [*dq_plain, "dq leaves", "drop q", "drop do", *dkdv_plain]
    together = [*dkdv_plain[:6], "dq enters", "dq leaves", "drop q", "drop do"]
    ends = ["dk leaves", "dv leaves", "drop k", "drop v"]
    for walk, cost in ((split, 14), (together, 16)):
        assert paid(BACKWARD, WITH_EDGES, [*walk, *ends]) == (cost, set(BACKWARD.tasks))


def test_a_task_of_no_side_is_never_done():
    nowhere = QueryKeyPair(frozenset("q"), frozenset("k"), frozenset(), (frozenset("x"),))
    with pytest.raises(ValueError, match="no walk does all tasks"):
        min_pair_cost(nowhere, ENTRIES)


def test_the_case_analysis_refuses_inside_an_exam():
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        min_pair_cost()


# ---- all pairs at once: random runs of complete rows -----------------------------------------------------


class Run:
    """A run over N queries and N keys, one row at a time, with the quantities that Theorem E counts.

    own: rows on the same side, when dq leaves and when dk or dv enters. edges: pairs whose dk or dv enters
    during a joint residency since dq left. by_pair: the charge of each pair, including edges.
    """

    def __init__(self, N, turns):
        self.N, self.there = N, set()
        self.own = self.edges = 0
        self.by_pair = {pair: 0 for pair in product(range(N), repeat=2)}
        self.left = {pair: set(BACKWARD.tasks) for pair in self.by_pair}
        self.joint = {pair: (set(), set()) for pair in self.by_pair}  # stayed, made
        for row in turns:
            self.turn(*row)
        for row in sorted(self.there):
            self.turn(*row)

    def turn(self, name, i):
        """Load or remove the row, and update all charges."""
        goes = (name, i) in self.there
        event = not goes or name in BACKWARD.accumulators
        mine = BACKWARD.queries if name in BACKWARD.queries else BACKWARD.keys
        self.there ^= {(name, i)}
        if name == "dq" if goes else name in ("dk", "dv"):
            self.own += 1 + sum(other in mine and (other, j) != (name, i) for other, j in self.there)
        for j in range(self.N):
            pair = (i, j) if name in BACKWARD.queries else (j, i)
            present = self.present(pair)
            if event:
                self.by_pair[pair] += len(BACKWARD.opposite(name) & present)
            self.follow(pair, name, goes, present)
            self.left[pair] -= {task for task in BACKWARD.tasks if task <= present}

    def present(self, pair):
        places = {name: pair[0] if name in BACKWARD.queries else pair[1] for name in BACKWARD.rows}
        return {name for name, at in places.items() if (name, at) in self.there}

    def follow(self, pair, name, goes, present):
        """Update the pair's joint residency, with edges as Theorem E defines them."""
        stayed, made = self.joint[pair]
        if goes and name == "dq" and {"q", "do"} <= present:
            stayed |= present & {"k", "v"}
        elif goes and name in ("q", "do"):
            stayed.clear()
        elif goes:
            stayed.discard(name)
        elif name in ("dk", "dv") and stayed and name not in made:
            made.add(name)
            self.edges += 1
            self.by_pair[pair] += 1
        if not stayed:
            made.clear()


def at_random(rng, N):
    """Return a run with random loads and removals of rows, some of which remain for long."""
    rows = [(name, i) for name in BACKWARD.rows for i in range(N)]
    there, stays = set(), rng.random(len(rows)) ** 3
    for _ in range(int(rng.integers(30, 500))):
        at = int(rng.integers(len(rows)))
        if at not in there or rng.random() < stays[at]:
            there ^= {at}
            yield rows[at]


def made_to_wait(N):
    """Return a run with all keys resident, queries one by one, and the key gradients after all dq."""
    yield from (("k", j) for j in range(N))
    for i in range(N):
        yield from (("v", 0), ("q", i), ("do", i), ("dq", i), ("dq", i), ("v", 0))
    for j in range(N):
        yield from (("dk", j), ("dk", j), ("dv", j), ("dv", j), ("k", j))


def test_in_random_runs_rows_of_ones_own_side_pay_for_the_edges():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(120):
        N = int(rng.integers(1, 6))
        found.append(Run(N, at_random(rng, N)))
    assert all(run.edges <= run.own for run in found)
    paid = [run.by_pair[pair] for run in found for pair, left in run.left.items() if not left]
    print(
        f"{sum(run.edges for run in found)} edges; {len(paid)} pairs with all tasks pay {min(paid)} or more"
    )
    assert min(paid) >= 14 and len(paid) > 100 and sum(run.edges for run in found) > 100


def test_where_pairs_wait_edges_are_nearly_all_of_what_pays_for_them():
    run = Run(40, made_to_wait(40))
    print(f"{run.edges} edges, {run.own} rows of the same side")
    assert run.edges == 2 * 40**2
    assert 0.9 * run.own < run.edges <= run.own
