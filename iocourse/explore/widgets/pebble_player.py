"""The pebble player: the cheapest pebbling of a small graph move by move, or a game of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ..figures.pebbles import Play, picture_of
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

STATES = 400_000  # that a search may look at: some two seconds
MEMORIES = 8  # values of M that are offered above the smallest
OPTIMUM, OWN = "play the optimum", "try yourself"
OWN_GRAPH = "your graph"
KINDS = ("load", "compute", "slide", "store", "delete")  # in the order of the rows of buttons


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
    """Play the cheapest pebbling with M red pebbles, or look for one yourself among the legal moves.

    `graph` is a graph as `pebbling.Graph.of` takes it, or a Pebbling, which is played with its own M and
    rules; without one it begins with the first of `PRESETS`. The rules are those of `pebbling.Game`. Where
    the environment variable IOCOURSE_WIDGETS is 0: the last picture alone. Raises NoPebbling, naming the
    smallest M, where M is too small.
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
    """The widget. `game` is what is played, `states` the states so far; `rows` hold buttons of legal moves.

    Its controls: preset, M, recompute, slide, mode; step, play, back, forward for the optimum; previous, do,
    next, undo, restart for a game of one's own.
    """

    def __init__(self, presets: dict[str, Preset], name: str, game: Game, solved: Solved) -> None:
        self.presets = presets
        self.rows = {kind: ui.wrapped([]) for kind in KINDS}
        for row in self.rows.values():
            row.layout.min_height = "34px"  # an empty row stays, so that the picture does not jump
        rules = Rules(name, game.M, game.recompute, game.slide)
        self._solved: dict[Rules, Solved] = {rules: solved}
        self._buttons: dict[Move, Any] = {}
        self._own = [game.start()]
        self._legal: tuple[Move, ...] = ()
        self._at = 0  # the legal move that the keyboard makes
        super().__init__(_controls(presets, rules))

    def actions(self) -> dict[str, Callable[[], None]]:
        return {
            "back": partial(self._by, -1),
            "forward": partial(self._by, 1),
            "previous": partial(self._turn, -1),
            "next": partial(self._turn, 1),
            "do": lambda: self._chosen(*self._legal[self._at : self._at + 1]),
            "undo": self.undo,
            "restart": self.restart,
        }

    def _arranged(self) -> list[Any]:
        self._playing = ui.wrapped(self._named("play", "back", "forward", "step"))
        chosen = ui.wrapped(self._named("previous", "do", "next", "undo", "restart"))
        self._trying = ui.column([chosen, *self.rows.values()])
        rules = ui.wrapped(self._named("M", "recompute", "slide"))
        above = [self.controls["preset"], rules, self.controls["mode"]]
        return [*above, self._playing, self._trying, self.words, self.view]

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
        return bool(self.controls["mode"].value == OWN)

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
    def picture(self) -> Picture:
        return picture_of(self._play())

    def _still(self) -> Picture:
        """The last picture, with all moves behind it."""
        play = self._play()
        return picture_of(play._replace(step=play.last))

    def _play(self) -> Play:
        last = len(self.states) - 1
        step = last if self._trying_oneself else min(self.controls["step"].value, last)
        return Play(self.game, self.states, step)

    def _optimum(self) -> Solved:
        """The cheapest pebbling of these rules; looked for once."""
        rules = self.setting
        if rules not in self._solved:
            self.words.value = in_html(["Looking for a cheapest pebbling …"])
            self._solved[rules] = solve(self.game)
        return self._solved[rules]

    # ------------------------------------------------------------------ what can be done
    def choose(self, move: Move | str) -> None:
        """Make a move in one's own game. Raises IllegalMove, and then nothing has changed."""
        self._own.append(self.game.after(self._own[-1], move))
        self.note = ""
        self._draw()

    def undo(self) -> None:
        """Take the last move of one's own game back."""
        self.note = (
            f"Taken back: {self._own[-1].move}." if len(self._own) > 1 else "There is nothing to undo."
        )
        del self._own[max(len(self._own) - 1, 1) :]
        self._draw()

    def restart(self) -> None:
        """Begin one's own game again."""
        self._own, self.note = [self.game.start()], ""
        self._draw()

    # ------------------------------------------------------------------ what the controls report
    def _after(self, name: str) -> None:
        self.note = ""
        if name in ("mode", "step"):
            return
        with self._together():
            if name == "preset":
                self.controls["slide"].value = self.presets[self.controls["preset"].value].slide
            self._fit_M()
            self.controls["step"].value = 0
        self._own = [self.game.start()]

    def _by(self, steps: int) -> None:
        step = self.controls["step"]
        step.value = min(max(step.value + steps, 0), step.max)

    def _turn(self, by: int) -> None:
        if self._legal:
            self._at = (self._at + by) % len(self._legal)
            self._name()

    def _chosen(self, move: Move | None = None) -> None:
        # A second click may arrive before the first has taken the button away.
        if move is not None and not self.game.objection(self._own[-1], move):
            self.choose(move)

    # ------------------------------------------------------------------ what is shown
    def _fit_M(self) -> None:
        """M begins where every output can be computed."""
        slider, least = self.controls["M"], self.game.smallest_M
        slider.max = max(slider.max, least + MEMORIES)
        slider.min = least
        slider.max = max(slider.value, least + MEMORIES)

    def _fit(self) -> None:
        own = self._trying_oneself
        self._fit_M()
        self._playing.layout.display = "none" if own else None
        self._trying.layout.display = None if own else "none"
        if own:
            self._offer()
        else:  # the player ends where the moves end
            self.controls["step"].max = self.controls["play"].max = len(self.states) - 1

    def _offer(self) -> None:
        """The legal moves, and no others, as buttons, and one by one for the keyboard."""
        state, game = self._own[-1], self.game
        legal = () if game.finished(state) else game.legal(state)
        self._legal, self._at = legal, 0
        self._name()
        for kind, row in self.rows.items():
            self._fill(row, kind, [move for move in legal if move.kind == kind])

    def _name(self) -> None:
        """Say on its button which move it makes."""
        do, found = self.controls["do"], len(self._legal)
        for name in ("do", "previous", "next"):
            self.controls[name].disabled = not found
        do.description = (
            f"make move {self._at + 1} of {found}: {self._legal[self._at]}" if found else "finished"
        )

    def _fill(self, row: Any, kind: str, moves: Sequence[Move]) -> None:
        import ipywidgets as widgets

        row.layout.display = None if kind != "slide" or self.controls["slide"].value else "none"
        row.children = [
            widgets.HTML(f"<b>{kind}</b>", layout=widgets.Layout(width="70px")),
            *(self._button(move) for move in moves),
        ]

    def _button(self, move: Move) -> Any:
        """The button of a move, made once: the page keeps those that stay."""
        if move not in self._buttons:
            self._buttons[move] = _move_button(move)
            self._buttons[move].on_click(partial(self._pressed, partial(self._chosen, move)))
        return self._buttons[move]

    def _said(self) -> str:
        return in_html([self._score(), self._advice()] if self._trying_oneself else self._fewest())

    def _fewest(self) -> list[str]:
        solved, M = self._optimum(), self.game.M
        if isinstance(solved, str):
            return ["There is no optimum to play; you can try yourself.", f"{solved}."]
        fewest = f"{solved[-1].cost} words moved with M = {M}: no pebbling moves fewer."
        return [fewest, f"Inputs and outputs alone make {compulsory(self.game.graph)} words."]

    def _score(self) -> str:
        state = self._own[-1]
        moved = f"{counted(state.cost, 'word')} moved"
        if not self.game.finished(state):
            return f"Your game: {moved}."
        solved = self._optimum()
        if isinstance(solved, str):
            return f"Finished: {moved}. No pebbling moves fewer than {compulsory(self.game.graph)}."
        fewest = solved[-1].cost
        if state.cost == fewest:
            return f"Finished: {moved}, and no pebbling moves fewer."
        return f"Finished: {moved}, {state.cost - fewest} more than the fewest, {fewest}."

    def _advice(self) -> str:
        game, state = self.game, self._own[-1]
        gone = lost(game, state)
        if gone:
            names = ", ".join(str(v) for v in gone)
            return (
                f"{self.note} {names}: deleted, not stored, and computed once only. Take moves back.".strip()
            )
        missing = ", ".join(str(v) for v in game.graph.outputs if v not in state.blue)
        return f"{self.note} {f'To be stored: {missing}.' if missing else ''}".strip()


def _controls(presets: dict[str, Preset], rules: Rules) -> dict[str, Any]:
    # No dropdown: JupyterLab takes letters and arrow keys on it for commands of the notebook.
    found = {
        "preset": ui.choice(presets, rules.preset),
        "M": ui.int_slider("M (red pebbles)", 1, rules.M + MEMORIES, rules.M, **ui.wide("400px")),
        "mode": ui.choice([OPTIMUM, OWN], OPTIMUM, button_width=""),
        **ui.player(700, **ui.wide("560px", "60px")),
    }
    for rule, meaning in _RULES.items():
        label, value = f"{rule}: {meaning}", getattr(rules, rule)
        found[rule] = ui.checkbox(label, value, indent=False, **ui.wide("auto"))
    return found | {name: ui.button(*texts, width="auto") for name, texts in _BUTTONS.items()}


_RULES = {
    "recompute": "a vertex may be computed again",
    "slide": "a result may take the red pebble of a parent",
}
_BUTTONS = {
    "back": ("back", "one move back"),
    "forward": ("forward", "one move on"),
    "previous": ("previous legal move", "name the legal move before this one"),
    "do": ("make this move", "the legal move that is named"),
    "next": ("next legal move", "name the legal move after this one"),
    "undo": ("undo", "take the last move back"),
    "restart": ("restart", "begin again"),
}


def _move_button(move: Move) -> Any:
    """A button for the mouse; the keyboard has four that stay where they are."""
    import ipywidgets as widgets

    label = str(move).removeprefix(f"{move.kind} ")
    return ui.mouse_button(label, str(move), widgets.Layout(width="auto", min_width="44px"))
