"""The pebble player: the cheapest pebbling of a small graph move by move, or a game of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...console import with_unit
from ...pebbling import Game, Graph, Move, Pebbling, State, TooLarge, Vertex, compulsory, optimum
from ...pebbling.graphs import attention, dot, matmul, softmax_row
from ..draw.picture import Picture
from ..draw.text import in_html
from ..figures.pebbles import RADIUS, Play, meaning, picture_of, places_of
from .controls import Control, button, by_name, choice, moves, player, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

STATES = 400_000  # that a search may look at: some two seconds
MEMORIES = 8  # values of M that are offered above the smallest
OPTIMUM, OWN = "play the optimum", "try yourself"
OWN_GRAPH = "your graph"
MENU = "your move"

PRESETS: dict[str, tuple[Graph, bool]] = {  # and whether a graph is meant to be pebbled with sliding moves
    "dot, d = 2": (dot(2), False),
    "softmax row, n = 3": (softmax_row(3), False),
    "matmul 2 x 2 x 2, FMA": (matmul(2, 2, 2, fma=True), True),
    "attention 2 x 2, FMA": (attention(2, 2, fma=True), True),
}

Solved = Sequence[State] | str  # the states of a cheapest pebbling, or why there is none


def solve(game: Game) -> Solved:
    """The states of a cheapest pebbling, or why the search for one was given up. Raises NoPebbling."""
    try:
        found = optimum(game.graph, game.M, recompute=game.recompute, slide=game.slide, max_states=STATES)
    except TooLarge as refusal:
        return str(refusal)
    return found.replay()


class Rules(NamedTuple):
    """Which graph is pebbled, and by what rules."""

    preset: str
    M: int
    recompute: bool
    slide: bool


@explorer
class PebblePlayer(Explorer):
    """Play the cheapest pebbling with M red pebbles, or look for one yourself: click a vertex of the graph.

    `graph` is a graph as `pebbling.Graph.of` takes it, or a Pebbling, which is played with its own M and
    rules; without one it begins with the first of `PRESETS`. The rules are those of `pebbling.Game`. Raises
    NoPebbling, naming the smallest M, where M is too small.

    A click on a vertex makes the one move that is legal there, or offers those that are, each a button called
    by its move. Its controls: mode; step for the optimum; vertex, those buttons, undo and restart for a game
    of one's own; preset, M, recompute, slide. `game` is what is played, `states` the states so far.
    """

    _asked: tuple[int, Vertex] | None = None  # the move and the vertex of a click that left a choice

    def __init__(self, graph: Any = None, M: int = 3, recompute: bool = True, slide: bool = False) -> None:
        found = graph if isinstance(graph, Pebbling) else None
        if found:
            graph, M, recompute, slide = found.graph, found.M, found.recompute, found.slide
        self.presets = PRESETS if graph is None else {OWN_GRAPH: (Graph.of(graph), slide)} | PRESETS
        name = next(iter(self.presets))
        game = Game(self.presets[name][0], M, recompute, slide)
        rules = Rules(name, game.M, game.recompute, game.slide)
        self._own = [game.start()]
        self._solved = {rules: found.replay() if found else solve(game)}
        super().__init__(rules, _controls(list(self.presets)))

    # ------------------------------------------------------------------ what is played
    @property
    def game(self) -> Game:
        """The graph and the rules that the controls stand on."""
        preset, M, recompute, slide = self.state
        return Game(self.presets[preset][0], M, recompute, slide)

    @property
    def _trying_oneself(self) -> bool:
        return bool(self.value("mode") == OWN)

    @property
    def states(self) -> Sequence[State]:
        """All states of the optimum, or of one's own game so far."""
        solved = self._own if self._trying_oneself else self._optimum()
        return [self.game.start()] if isinstance(solved, str) else solved

    @property
    def moves(self) -> list[str]:
        """The moves of `states`, as `pebbling.replay` takes them."""
        return [str(state.move) for state in self.states[1:]]

    @property
    def legal(self) -> list[Move]:
        """The moves that are legal at the chosen vertex of one's own game."""
        state, game = self._own[-1], self.game
        over = not self._trying_oneself or game.finished(state)
        return [] if over else [move for move in game.legal(state) if move.vertex == self.value("vertex")]

    def shown(self) -> Shown:
        own, play, lines = self._trying_oneself, self._play(), self._lines()
        picture = picture_of(play, self.value("vertex") if own else None)
        spoken = meaning(play) if play.step and not own else " ".join(lines)
        places = places_of(self.game.graph).values()
        grabs = [Grab(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS) for x, y in places]
        return Shown(picture, in_html(lines), spoken, grabs)

    def still(self) -> Picture:
        """The last picture, with all moves behind it."""
        play = self._play()
        return picture_of(play._replace(step=play.last))

    def _play(self) -> Play:
        last = len(self.states) - 1
        return Play(self.game, self.states, last if self._trying_oneself else self.value("step"))

    def _optimum(self) -> Solved:
        """The cheapest pebbling of these rules; looked for once."""
        rules = self.state
        if rules not in self._solved:
            self._show(words=in_html(["Looking for a cheapest pebbling …"]))
            self._solved[rules] = solve(self.game)
        return self._solved[rules]

    # ------------------------------------------------------------------ what can be done
    def choose(self, move: Move | str) -> None:
        """Make a move in one's own game. Raises IllegalMove, and then nothing has changed."""
        self._make(move)
        self._draw()

    def _make(self, move: Move | str) -> None:
        move = self.game.move(move)
        self._own.append(self.game.after(self._own[-1], move))
        self.controls["vertex"].value, self.note = move.vertex, ""

    def _pressed(self, name: str) -> Any:
        return self._make(name) if self.controls[name].group == MENU else super()._pressed(name)

    def _undo(self) -> str:
        taken = self._own.pop() if len(self._own) > 1 else None
        return f"Taken back: {taken.move}." if taken else "There is nothing to undo."

    def _restart(self) -> None:
        self._own = [self.game.start()]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """A click on a vertex makes its one legal move; of several, the buttons are offered."""
        places = zip(self.game.graph.vertices, self.grabs, strict=True)
        vertex = next((vertex for vertex, grab in places if kind == "down" and grab.holds(x, y)), None)
        if vertex is None:
            return
        self.controls["mode"].value, self.controls["vertex"].value, self.note = OWN, vertex, ""
        self._asked = (len(self._own), vertex) if len(self.legal) > 1 else None
        if len(self.legal) == 1:
            self._make(self.legal[0])

    # ------------------------------------------------------------------ what the controls report
    def _after(self, name: str) -> None:
        self._asked = None
        if name == "preset":
            _, self.controls["slide"].value = self.presets[self.value("preset")]
        if name in Rules._fields:
            self.controls["step"].value = 0
            self._restart()

    def _fit(self) -> None:
        """M begins where every output can be computed, and the player ends where the moves end."""
        own, game, M = self._trying_oneself, self.game, self.controls["M"]
        M.offer(by_name(range(game.smallest_M, max(M.value, game.smallest_M + MEMORIES) + 1)))
        self.controls["vertex"].offer({str(v): v for v in game.graph.vertices})
        if not own:
            self.controls["step"].offer(moves(len(self.states) - 1))
        self.controls["step"].hidden = own
        for name in ("vertex", "undo", "restart"):
            self.controls[name].hidden = not own
        self._fit_menu()

    def _fit_menu(self) -> None:
        """A button for each legal move of the chosen vertex, hanging from it while a click waits for one."""
        x, y = places_of(self.game.graph)[self.value("vertex")]
        at = (x, y + RADIUS + 10) if self._asked == (len(self._own), self.value("vertex")) else None
        made = [button(name, name, "make this move", group=MENU, hangs=at) for name in map(str, self.legal)]
        kept = [one for one in self.controls.values() if one.group != MENU]
        behind = kept.index(self.controls["vertex"]) + 1
        self.controls = {one.name: one for one in (*kept[:behind], *made, *kept[behind:])}

    # ------------------------------------------------------------------ what is said
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
        finished = self.game.finished(state)
        moved = f"{'Finished' if finished else 'Your game'}: {with_unit(state.cost, 'word')} moved"
        if isinstance(solved, str):
            return f"{moved}, no pebbling moves fewer than {compulsory(self.game.graph)}."
        if finished and state.cost == solved[-1].cost:
            return f"{moved}, and no pebbling moves fewer."
        return f"{moved}, the optimum moves {solved[-1].cost}."

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
        play = self._play()
        gone, missing = (", ".join(map(str, some)) for some in (play.game.lost(play.state), play.missing))
        if gone:
            return f"{gone}: deleted, not stored, and computed once only. Take moves back."
        return f"To be stored: {missing}." if missing else ""


def _controls(presets: list[str]) -> Iterator[Control]:
    yield choice("mode", "mode", [OPTIMUM, OWN])
    yield player(700)
    yield Control("list", "vertex", "vertex", {})
    yield button("undo", "undo", "take the last move back")
    yield button("restart", "restart", "begin again")
    yield choice("preset", "graph", presets)
    yield slider("M", "M (red pebbles)")
    yield tick("recompute", "recompute: a vertex may be computed again")
    yield tick("slide", "slide: a result may take the red pebble of a parent")
