"""Pebble player: explorer that plays an optimal pebbling of a small graph, or a game of the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ....console import with_unit
from ....pebbling import Game, Graph, Move, Pebbling, State, TooLarge, Vertex, compulsory, optimum
from ....pebbling.graphs import attention, dot, matmul, softmax_row
from ..draw.picture import Picture
from ..draw.text import in_html
from ..figures.pebbles import RADIUS, Play, draw_pebbles, meaning, places_of
from .controls import Control, button, by_name, choice, player, player_steps, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

STATES = 400_000  # limit of a search, about two seconds
MEMORIES = 8  # values of M offered above the smallest one
OPTIMUM, OWN = "play the optimum", "try yourself"
OWN_GRAPH = "your graph"
MENU = "your move"

PRESETS: dict[str, tuple[Graph, bool]] = {  # graph, and True if it is pebbled with sliding moves
    "dot, d = 2": (dot(2), False),
    "softmax row, n = 3": (softmax_row(3), False),
    "matmul 2 x 2 x 2, FMA": (matmul(2, 2, 2, fma=True), True),
    "attention 2 x 2, FMA": (attention(2, 2, fma=True), True),
}

Solved = Sequence[State] | str  # states of an optimal pebbling, or the reason why none was found


def solve(game: Game) -> Solved:
    """Return the states of an optimal pebbling, or why the search stopped. Raises NoPebbling."""
    try:
        found = optimum(game.graph, game.M, recompute=game.recompute, slide=game.slide, max_states=STATES)
    except TooLarge as refusal:
        return str(refusal)
    return found.replay()


class Rules(NamedTuple):
    """Settings of one game: name of the graph, M red pebbles, and which moves are allowed."""

    preset: str
    M: int
    recompute: bool
    slide: bool


@explorer
class PebblePlayer(Explorer):
    """Interactive red-blue pebble game: play an optimal pebbling with M red pebbles, or your own moves.

    A click on a vertex makes the only legal move there, or shows a button for each legal move. Controls:
    mode; step for the optimal pebbling; vertex, these buttons, undo and restart for your own game; preset, M,
    recompute and slide.

    Args:
        graph: an argument of `pebbling.Graph.of`, or a Pebbling, which is played with its own M and rules;
            None: the first of `PRESETS`.
        M: red pebbles.
        recompute, slide: the rules of `pebbling.Game`.

    Raises:
        NoPebbling: M is too small; the message names the smallest M.
    """

    _asked: tuple[int, Vertex] | None = None  # number of states, and the vertex of an ambiguous click

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

    # ------------------------------------------------------------------ game and moves
    @property
    def game(self) -> Game:
        """The graph and the rules selected by the controls."""
        preset, M, recompute, slide = self.state
        return Game(self.presets[preset][0], M, recompute, slide)

    @property
    def _trying_oneself(self) -> bool:
        return bool(self.value("mode") == OWN)

    @property
    def states(self) -> Sequence[State]:
        """All states of the optimal pebbling, or of the user's game so far."""
        solved = self._own if self._trying_oneself else self._optimum()
        return [self.game.start()] if isinstance(solved, str) else solved

    @property
    def moves(self) -> list[str]:
        """The moves between `states`, in the format of `pebbling.replay`."""
        return [str(state.move) for state in self.states[1:]]

    @property
    def legal(self) -> list[Move]:
        """The legal moves at the selected vertex in the user's game."""
        state, game = self._own[-1], self.game
        over = not self._trying_oneself or game.finished(state)
        return [] if over else [move for move in game.legal(state) if move.vertex == self.value("vertex")]

    def shown(self) -> Shown:
        own, play, lines = self._trying_oneself, self._play(), self._lines()
        picture = draw_pebbles(play, self.value("vertex") if own else None)
        spoken = meaning(play) if play.step and not own else " ".join(lines)
        places = places_of(self.game.graph).values()
        grabs = [Grab(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS) for x, y in places]
        return Shown(picture, in_html(lines), spoken, grabs)

    def still(self) -> Picture:
        """Return the figure after the last move."""
        play = self._play()
        return draw_pebbles(play._replace(step=play.last))

    def _play(self) -> Play:
        last = len(self.states) - 1
        return Play(self.game, self.states, last if self._trying_oneself else self.value("step"))

    def _optimum(self) -> Solved:
        """Return the optimal pebbling for the current rules, searched for once."""
        rules = self.state
        if rules not in self._solved:
            self._show(words=in_html(["Searching for an optimal pebbling …"]))
            self._solved[rules] = solve(self.game)
        return self._solved[rules]

    # ------------------------------------------------------------------ user input
    def choose(self, move: Move | str) -> None:
        """Make a move in the user's game. Raises IllegalMove for an illegal one, and changes nothing."""
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
        return f"Undone: {taken.move}." if taken else "Nothing to undo."

    def _restart(self) -> None:
        self._own = [self.game.start()]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """Make the only legal move of a clicked vertex, or show buttons for several."""
        places = zip(self.game.graph.vertices, self.grabs, strict=True)
        vertex = next((vertex for vertex, grab in places if kind == "down" and grab.holds(x, y)), None)
        if vertex is None:
            return
        self.controls["mode"].value, self.controls["vertex"].value, self.note = OWN, vertex, ""
        self._asked = (len(self._own), vertex) if len(self.legal) > 1 else None
        if len(self.legal) == 1:
            self._make(self.legal[0])

    # ------------------------------------------------------------------ controls
    def _after(self, name: str) -> None:
        self._asked = None
        if name == "preset":
            _, self.controls["slide"].value = self.presets[self.value("preset")]
        if name in Rules._fields:
            self.controls["step"].value = 0
            self._restart()

    def _fit(self) -> None:
        """Offer M from the smallest valid value, limit the player, hide the controls of the other mode."""
        own, game, M = self._trying_oneself, self.game, self.controls["M"]
        M.offer(by_name(range(game.smallest_M, max(M.value, game.smallest_M + MEMORIES) + 1)))
        self.controls["vertex"].offer({str(v): v for v in game.graph.vertices})
        if not own:
            self.controls["step"].offer(player_steps(len(self.states) - 1))
        self.controls["step"].hidden = own
        for name in ("vertex", "undo", "restart"):
            self.controls[name].hidden = not own
        self._fit_menu()

    def _fit_menu(self) -> None:
        """Add a button for each legal move of the selected vertex; attach them after an ambiguous click."""
        x, y = places_of(self.game.graph)[self.value("vertex")]
        at = (x, y + RADIUS + 10) if self._asked == (len(self._own), self.value("vertex")) else None
        made = [button(name, name, "Make this move", group=MENU, hangs=at) for name in map(str, self.legal)]
        kept = [one for one in self.controls.values() if one.group != MENU]
        behind = kept.index(self.controls["vertex"]) + 1
        self.controls = {one.name: one for one in (*kept[:behind], *made, *kept[behind:])}

    # ------------------------------------------------------------------ text
    def _lines(self) -> tuple[str, str]:
        if self._trying_oneself:
            return self._score(), " ".join(filter(None, (self.note, self._chosen(), self._advice())))
        solved, M = self._optimum(), self.game.M
        if isinstance(solved, str):
            return "No optimal pebbling was found. You can try yourself.", f"{solved}."
        fewest = f"{solved[-1].cost} words moved with M = {M}, the minimum."
        least = compulsory(self.game.graph)
        return (
            fewest,
            f"The compulsory traffic is {least} words. Click a vertex to try yourself.",
        )

    def _score(self) -> str:
        """Return the traffic of the user's game and the minimum."""
        state, solved = self._own[-1], self._optimum()
        finished = self.game.finished(state)
        moved = f"{'Finished' if finished else 'Your game'}: {with_unit(state.cost, 'word')} moved"
        if isinstance(solved, str):
            return f"{moved}; the minimum is at least {compulsory(self.game.graph)}."
        if finished and state.cost == solved[-1].cost:
            return f"{moved}, the minimum."
        return f"{moved}; the minimum is {solved[-1].cost}."

    def _chosen(self) -> str:
        """Return the legal moves at the selected vertex, or the reason for their absence."""
        game, state, v = self.game, self._own[-1], self.value("vertex")
        if game.finished(state):
            return ""
        if self.legal:
            return f"Legal moves at {v}: {', '.join(map(str, self.legal))}."
        kind = "load" if v in state.blue else "compute"
        return f"No legal move at {v}: {game.objection(state, Move(kind, v))}."

    def _advice(self) -> str:
        play = self._play()
        gone, missing = (", ".join(map(str, some)) for some in (play.game.lost(play.state), play.missing))
        if gone:
            return f"{gone} was deleted before it was stored and cannot be recomputed. Undo some moves."
        return f"Still to be stored: {missing}." if missing else ""


def _controls(presets: list[str]) -> Iterator[Control]:
    yield choice("mode", "mode", [OPTIMUM, OWN])
    yield player(700)
    yield Control("list", "vertex", "vertex", {})
    yield button("undo", "undo", "Undo the last move")
    yield button("restart", "restart", "Start again")
    yield choice("preset", "graph", presets)
    yield slider("M", "M (red pebbles)")
    yield tick("recompute", "recompute: a vertex may be computed more than once")
    yield tick("slide", "slide: a result may take the red pebble of a parent")
