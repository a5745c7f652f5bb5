"""The pebble player: the cheapest pebbling of a small graph move by move, or a game of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...pebbling import (
    Game,
    Graph,
    Move,
    Pebbling,
    State,
    TooLarge,
    Vertex,
    attention,
    compulsory,
    dot,
    matmul,
    optimum,
    softmax_row,
)
from ..draw.html import in_html
from ..draw.picture import Picture
from ..draw.wording import counted
from ..figures.pebbles import RADIUS, Play, meaning, picture_of, places_of
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import Control, button, by_name, choice, moves, player, slider, tick

STATES = 400_000  # that a search may look at: some two seconds
MEMORIES = 8  # values of M that are offered above the smallest
OPTIMUM, OWN = "play the optimum", "try yourself"
OWN_GRAPH = "your graph"
MENU = "your move"
BUTTONS = {"undo": "take the last move back", "restart": "begin again"}


class Preset(NamedTuple):
    """A graph, and whether it is meant to be pebbled with sliding moves."""

    graph: Graph
    slide: bool


PRESETS = {
    "dot, d = 2": Preset(dot(2), False),
    "softmax row, n = 3": Preset(softmax_row(3), False),
    "matmul 2 x 2 x 2, FMA": Preset(matmul(2, 2, 2, fma=True), True),
    "attention 2 x 2, FMA": Preset(attention(2, 2, fma=True), True),
}

Solved = Sequence[State] | str  # the states of a cheapest pebbling, or why there is none


@explorer
def pebble_player(
    graph: Any = None, M: int = 3, recompute: bool = True, slide: bool = False
) -> PebblePlayer | Picture:
    """Play the cheapest pebbling with M red pebbles, or look for one yourself: click a vertex of the graph.

    `graph` is a graph as `pebbling.Graph.of` takes it, or a Pebbling, which is played with its own M and
    rules; without one it begins with the first of `PRESETS`. The rules are those of `pebbling.Game`. Where
    there are no widgets: the last picture alone. Raises NoPebbling, naming the smallest M, where M is too
    small.
    """
    presets, name = PRESETS, next(iter(PRESETS))
    if isinstance(graph, Pebbling):
        M, recompute, slide = graph.M, graph.recompute, graph.slide
    if graph is not None:
        own = graph.graph if isinstance(graph, Pebbling) else Graph.of(graph)
        presets, name = {OWN_GRAPH: Preset(own, slide)} | PRESETS, OWN_GRAPH
    game = Game(presets[name].graph, M, recompute, slide)
    solved = graph.replay() if isinstance(graph, Pebbling) else solve(game)
    if without_widgets():
        states = [game.start()] if isinstance(solved, str) else solved
        return picture_of(Play(game, states, len(states) - 1))
    return PebblePlayer(presets, name, game, solved)


def solve(game: Game) -> Solved:
    """The states of a cheapest pebbling, or why the search for one was given up. Raises NoPebbling."""
    try:
        found = optimum(game.graph, game.M, recompute=game.recompute, slide=game.slide, max_states=STATES)
    except TooLarge as refusal:
        return str(refusal)
    return found.replay()


def lost(game: Game, state: State) -> list[Vertex]:
    """What is needed, in neither memory, and may not be computed again: then no pebbling can be finished."""
    if game.recompute:
        return []
    gone = state.computed - state.red - state.blue
    ahead = set(game.graph.needed) - state.computed
    children = game.graph.children
    return [
        v for v in game.graph.vertices if v in gone and (v in game.graph.outputs or ahead & set(children[v]))
    ]


class Rules(NamedTuple):
    """Which graph is pebbled, and by what rules."""

    preset: str
    M: int
    recompute: bool
    slide: bool


class PebblePlayer(Explorer):
    """The explorer. `game` is what is played, `states` the states so far.

    A click on a vertex makes the one move that is legal there, or offers those that are, each a button called
    by its move. Its controls: mode; step for the optimum; vertex, those buttons, undo and restart for a game
    of one's own; preset, M, recompute, slide.
    """

    _asked = False  # whether a click waits for the choice of a move

    def __init__(self, presets: dict[str, Preset], name: str, game: Game, solved: Solved) -> None:
        self.presets = presets
        rules = Rules(name, game.M, game.recompute, game.slide)
        self._solved: dict[Rules, Solved] = {rules: solved}
        self._own = [game.start()]
        super().__init__(_controls(presets, rules))

    # ------------------------------------------------------------------ what is played
    @property
    def setting(self) -> Rules:
        return Rules(*self._values(*Rules._fields))

    @property
    def game(self) -> Game:
        """The graph and the rules that the controls stand on."""
        preset, M, recompute, slide = self.setting
        return Game(self.presets[preset].graph, M, recompute, slide)

    @property
    def _trying_oneself(self) -> bool:
        return bool(self.value("mode") == OWN)

    @property
    def states(self) -> Sequence[State]:
        """All states of the optimum, or of one's own game so far."""
        if self._trying_oneself:
            return self._own
        solved = self._optimum()
        return [self.game.start()] if isinstance(solved, str) else solved

    @property
    def state(self) -> State:
        """The state that is shown."""
        return self._play().state

    @property
    def moves(self) -> list[str]:
        """The moves of `states`, as `pebbling.replay` takes them."""
        return [str(state.move) for state in self.states[1:]]

    @property
    def legal(self) -> tuple[Move, ...]:
        """The moves that are legal at the chosen vertex of one's own game."""
        state, game = self._own[-1], self.game
        over = not self._trying_oneself or game.finished(state)
        return (
            () if over else tuple(move for move in game.legal(state) if move.vertex == self.value("vertex"))
        )

    @property
    def picture(self) -> Picture:
        return picture_of(self._play(), self.value("vertex") if self._trying_oneself else None)

    def _still(self) -> Picture:
        """The last picture, with all moves behind it."""
        play = self._play()
        return picture_of(play._replace(step=play.last))

    def _play(self) -> Play:
        last = len(self.states) - 1
        return Play(self.game, self.states, last if self._trying_oneself else min(self.value("step"), last))

    def _optimum(self) -> Solved:
        """The cheapest pebbling of these rules; looked for once."""
        rules = self.setting
        if rules not in self._solved:
            self._meanwhile(in_html(["Looking for a cheapest pebbling …"]))
            self._solved[rules] = solve(self.game)
        return self._solved[rules]

    # ------------------------------------------------------------------ what can be done
    def actions(self) -> dict[str, Callable[[], None]]:
        offered = {str(move): partial(self._make, move) for move in self.legal}
        return {**offered, "undo": self._undo, "restart": self._restart}

    def choose(self, move: Move | str) -> None:
        """Make a move in one's own game. Raises IllegalMove, and then nothing has changed."""
        self._make(move)
        self._draw()

    def _make(self, move: Move | str) -> None:
        move = self.game.move(move)
        self._own.append(self.game.after(self._own[-1], move))
        self.controls["vertex"].value = move.vertex
        self._remark()

    def _undo(self) -> None:
        taken = self._own.pop() if len(self._own) > 1 else None
        self._remark(f"Taken back: {taken.move}." if taken else "There is nothing to undo.")

    def _restart(self) -> None:
        self._own = [self.game.start()]
        self._remark()

    def _remark(self, note: str = "") -> None:
        self.note, self._asked = note, False

    def grabs(self) -> Iterable[Grab]:
        for x, y in places_of(self.game.graph).values():
            yield Grab(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS)

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """A click on a vertex makes its one legal move; of several, the buttons are offered."""
        near = [
            v for v, at in places_of(self.game.graph).items() if max(abs(at[0] - x), abs(at[1] - y)) <= RADIUS
        ]
        if kind == "down" and near:
            self.controls["mode"].value, self.controls["vertex"].value = OWN, near[0]
            self._remark()
            self._asked = len(self.legal) > 1
            if len(self.legal) == 1:
                self._make(self.legal[0])

    def frames(self) -> dict[str, tuple[float, float]]:
        """Where a click left a choice, its buttons hang from the vertex."""
        if not self._asked:
            return {}
        x, y = places_of(self.game.graph)[self.value("vertex")]
        return {MENU: (x, y + RADIUS + 10)}

    # ------------------------------------------------------------------ what the controls report
    def _after(self, name: str) -> None:
        self._remark()
        if name == "preset":
            self.controls["slide"].value = self.presets[self.value("preset")].slide
        if name in Rules._fields:
            self.controls["step"].value = 0
            self._fit_M()
            self._restart()

    def _fit(self) -> None:
        own, vertices = self._trying_oneself, self.game.graph.vertices
        self._fit_M()
        vertex, step = self.controls["vertex"], self.controls["step"]
        vertex.offered = {str(v): v for v in vertices}
        vertex.value = vertex.value if vertex.value in vertices else vertices[0]
        if not own:  # the player ends where the moves end
            step.offered = moves(len(self.states) - 1)
            step.value = min(step.value, len(self.states) - 1)
        step.hidden = own
        for name in ("vertex", *BUTTONS):
            self.controls[name].hidden = not own
        self._fit_menu()

    def _fit_M(self) -> None:
        """M begins where every output can be computed."""
        M, least = self.controls["M"], self.game.smallest_M
        M.value = max(M.value, least)
        M.offered = by_name(range(least, max(M.value, least + MEMORIES) + 1))

    def _fit_menu(self) -> None:
        """A button for each legal move of the chosen vertex, and for no other."""
        made = [replace(button(str(move), str(move), "make this move"), group=MENU) for move in self.legal]
        kept = [one for one in self.controls.values() if one.group != MENU]
        behind = kept.index(self.controls["vertex"]) + 1
        self.controls = {one.name: one for one in (*kept[:behind], *made, *kept[behind:])}

    # ------------------------------------------------------------------ what is said
    def _said(self) -> str:
        return in_html(self._lines())

    def _spoken(self) -> str:
        play, lines = self._play(), self._lines()
        return meaning(play) if play.step and not self._trying_oneself else " ".join(lines)

    def _lines(self) -> tuple[str, str]:
        if self._trying_oneself:
            return self._score(), " ".join(filter(None, (self.note, self._chosen(), self._advice())))
        solved, M = self._optimum(), self.game.M
        if isinstance(solved, str):
            return "There is no optimum to play; you can try yourself.", f"{solved}."
        fewest = f"{solved[-1].cost} words moved with M = {M}: no pebbling moves fewer."
        least = compulsory(self.game.graph)
        return fewest, f"Inputs and outputs alone make {least} words. Click a vertex to try yourself."

    def _score(self) -> str:
        """One's own words beside those of the optimum."""
        state, solved = self._own[-1], self._optimum()
        moved = f"{counted(state.cost, 'word')} moved"
        if isinstance(solved, str):
            fewest = f"no pebbling moves fewer than {compulsory(self.game.graph)}"
        elif self.game.finished(state) and state.cost == solved[-1].cost:
            fewest = "and no pebbling moves fewer"
        else:
            fewest = f"the optimum moves {solved[-1].cost}"
        return f"{'Finished' if self.game.finished(state) else 'Your game'}: {moved}, {fewest}."

    def _chosen(self) -> str:
        """What is legal at the chosen vertex, or why nothing is."""
        game, state, v = self.game, self._own[-1], self.value("vertex")
        if game.finished(state):
            return ""
        if self.legal:
            return f"Legal at {v}: {', '.join(map(str, self.legal))}."
        kind = "load" if v in state.blue else "compute"
        return f"Nothing is legal at {v}: {game.objection(state, Move(kind, v))}."

    def _advice(self) -> str:
        game, state = self.game, self._own[-1]
        gone = ", ".join(map(str, lost(game, state)))
        if gone:
            return f"{gone}: deleted, not stored, and computed once only. Take moves back."
        missing = ", ".join(str(v) for v in game.graph.outputs if v not in state.blue)
        return f"To be stored: {missing}." if missing else ""


def _controls(presets: dict[str, Preset], rules: Rules) -> Iterator[Control]:
    first = presets[rules.preset].graph.vertices[0]
    yield choice("mode", "mode", [OPTIMUM, OWN], OPTIMUM)
    yield player(700, 0)
    yield Control("list", "vertex", "vertex", {str(first): first}, first)
    for name, hint in BUTTONS.items():
        yield button(name, name, hint)
    yield choice("preset", "graph", list(presets), rules.preset)
    yield slider("M", "M (red pebbles)", [], rules.M)
    yield tick("recompute", "recompute: a vertex may be computed again", rules.recompute)
    yield tick("slide", "slide: a result may take the red pebble of a parent", rules.slide)
