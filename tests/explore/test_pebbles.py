"""Tests of the pebble player: the figure agrees with `replay`, and only legal moves can be selected."""

from importlib import import_module
from itertools import pairwise

import pytest
from figure_layout import check_layout, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import pebbling
from iocourse.course.explore import PebblePlayer, pebble_player, pebbles
from iocourse.course.explore.draw.graph_layout import layout
from iocourse.course.explore.draw.palette import BLUE, PAPER, VERMILION
from iocourse.course.explore.draw.picture import Poly, Rect
from iocourse.course.explore.figures.pebbles import RADIUS, Play, draw_pebbles, places_of, slots
from iocourse.course.explore.widgets.pebble_player import OPTIMUM, OWN, OWN_GRAPH, PRESETS, solve
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.pebbling import Game, Graph, IllegalMove, NoPebbling, attention, dot, matmul, optimum

MODULE = import_module(PebblePlayer.__module__)  # the function has the name of its module
DOT = optimum(dot(2), 3)
LARGE = attention(2, 3, fma=True)


@pytest.fixture(autouse=True, scope="module")
def each_game_is_searched_once():
    """Cache the searches, because many tests play the presets and a search takes seconds."""
    found = {}

    def search(graph, M, **rules):
        key = str(graph.parents), graph.outputs, M, *rules.items()
        if key not in found:
            found[key] = optimum(graph, M, **rules)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "optimum", search)
        yield


@st.composite
def any_graph(draw):
    """Draw a graph of at most 12 vertices, which are tuples."""
    parents = {("v", 0): []}
    for k in range(1, draw(st.integers(1, 12))):
        parents["v", k] = [("v", p) for p in draw(st.sets(st.integers(0, k - 1), max_size=3))]
    return Graph.of(parents)


@st.composite
def any_play(draw):
    """Draw some legal moves in a random game."""
    graph = draw(st.one_of(any_graph(), st.sampled_from([graph for graph, _ in PRESETS.values()])))
    slide, recompute = draw(st.booleans()), draw(st.booleans())
    least = Game(graph, 1, recompute, slide).smallest_M
    game = Game(graph, draw(st.integers(least, least + 3)), recompute, slide)
    states = [game.start()]
    for _ in range(draw(st.integers(0, 25))):
        legal = game.legal(states[-1])
        if legal:
            states.append(game.after(states[-1], draw(st.sampled_from(legal))))
    return Play(game, states, draw(st.integers(0, len(states) - 1)))


# ---------------------------------------------------------------------- where the vertices stand
@given(any_graph())
@settings(max_examples=many(60, 150))
def test_vertices_stand_on_their_levels_and_edges_go_around_them(graph):
    found = layout(graph)
    rows = {v: k for k, vertices in enumerate(graph.levels) for v in vertices}
    assert {v: y for v, (_, y) in found.at.items()} == rows
    for vertices in graph.levels:
        xs = sorted(found.at[v][0] for v in vertices)
        assert all(b - a >= 1 - 1e-9 for a, b in pairwise(xs))
        assert xs[0] >= 0 and xs[-1] <= found.width
    assert set(found.edges) == {(p, v) for v, parents in graph.parents.items() for p in parents}
    for (parent, child), way in found.edges.items():
        assert way[0] == found.at[parent] and way[-1] == found.at[child]
        assert [y for _, y in way] == list(range(rows[parent], rows[child] + 1))
        for x, y in way[1:-1]:
            assert all(abs(found.at[v][0] - x) >= 0.75 for v in graph.levels[y])


def test_a_vertex_is_not_taken_for_the_way_of_an_edge():
    found = layout(Graph.of({"a": [], ("a", 1): ["a"], "c": ["a", ("a", 1)]}))
    assert abs(found.edges["a", "c"][1][0] - found.at["a", 1][0]) >= 0.75


def test_a_tree_is_drawn_without_crossings():
    crossed = Graph.of({"a": [], "b": [], "c": [], "d": [], "y": ["b", "d"], "x": ["a", "c"]})
    at = {v: x for v, (x, _) in layout(crossed).at.items()}
    assert (at["a"] + at["c"] - at["b"] - at["d"]) * (at["x"] - at["y"]) > 0
    assert (max(at["a"], at["c"]) < min(at["b"], at["d"])) or (max(at["b"], at["d"]) < min(at["a"], at["c"]))


# ---------------------------------------------------------------------- the figure
@given(any_play())
@settings(max_examples=many(50, 120))
def test_every_state_shows_its_pebbles_and_says_them(play):
    picture, state = draw_pebbles(play), play.state
    filled = [
        e for e in picture.elements if isinstance(e, Poly) and e.fill == VERMILION and len(e.points) > 9
    ]
    assert len(filled) == len(state.red) + 1  # one in the legend
    squares = [e for e in picture.elements if isinstance(e, Rect) and e.fill == BLUE]
    assert len(squares) == len(state.blue) + 1
    asked = [e for e in picture.elements if isinstance(e, Poly) and e.stroke == BLUE]
    assert len(asked) == len(set(play.game.graph.outputs) - state.blue) + 1
    assert f"{len(state.red)} of M = {play.game.M} red pebbles in use" in picture.alt
    check_layout(picture)


@given(any_play())
def test_words_in_fast_memory_keep_their_places(play):
    before = None
    for step in range(play.step + 1):
        now = slots(play._replace(step=step))
        assert {v for v in now if v is not None} == play.states[step].red
        assert len(now) == min(play.game.M, len(play.game.graph))
        if before is not None:
            moved = sum(a != b for a, b in zip(before, now, strict=True))
            assert moved == (play.states[step].move.kind not in ("store",))
        before = now


def test_the_table_is_the_replay():
    rows = [line.split() for line in pebbles(DOT, 4).numbers.splitlines()[1:]]
    for k, (row, state) in enumerate(zip(rows, DOT.replay(), strict=True)):
        assert row[0] == str(k) and " ".join(row[1:-2]) == str(state.move or "start")
        assert row[-2:] == [str(state.cost), str(len(state.red))]
    assert rows[-1][-2] == str(DOT.cost)


def test_a_state_in_words():
    assert pebbles(DOT, 6).alt == (
        "A graph of 7 vertices, inputs at the bottom. After move 6 of 15, store p1: 3 words moved, "
        "1 of M = 3 red pebbles in use. Red pebbles (in fast memory): p1. "
        "Blue pebbles (in slow memory): a1, a2, b1, b2, p1. Outputs to be stored: s."
    )
    assert "Before the first move: 0 words moved" in pebbles(DOT, 0).alt
    assert "Outputs to be stored: none." in pebbles(DOT).alt


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (["load a1"], "a1 is loaded into fast memory: 1 word. 1 word moved so far."),
        (["load a1", "load b1", "slide b1 to p1"], "p1 is computed from a1, b1 and replaces b1."),
        (["load a1", "load b1", "compute p1"], "p1 is computed from a1, b1. 2 words"),
        (["load a1", "delete a1"], "a1 is deleted from fast memory."),
        ([], "The inputs are in slow memory"),
    ],
)
def test_the_move_is_said_and_its_vertex_ringed(moves, said):
    picture = pebbles(dot(2), moves=moves, M=3, slide=True)
    assert any(said in text for text in texts(picture))
    rings = [e for e in picture.elements if isinstance(e, Poly) and e.line == 3]
    assert len(rings) == 1 + bool(moves)


def test_arrows_into_what_is_computed_are_thick():
    thick = [e for e in pebbles(DOT, 3).elements if isinstance(e, Poly) and e.line == 2.4]
    assert len(thick) == 2
    assert not [e for e in pebbles(DOT, 4).elements if isinstance(e, Poly) and e.line == 2.4]


def test_a_pebbling_brings_its_moves_and_a_graph_its_smallest_memory():
    assert pebbles(DOT) == pebbles(dot(2), 15, DOT.moves, 3)
    assert pebbles(DOT, moves=["load a1"]).title == "Red-blue pebbling with M = 3: move 1 of 1, load a1"
    assert "with M = 3: the start" in pebbles(LARGE, slide=True).title
    assert "with M = 4: the start" in pebbles(LARGE).title


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((DOT, 16), ValueError, r"step must be from 0 \(the start\) to 15, got 16"),
        ((DOT, -1), ValueError, "step must be at least 0, got -1"),
        ((DOT, 1.0), TypeError, "step must be an integer of at least "),
        ((dot(2), None, ["load a1", "compute p1"], 3), IllegalMove, "move 2, compute p1: its parent b1"),
        ((dot(2), None, None, 0), ValueError, "M must be at least 1, got 0"),
        ((matmul(4, 4, 4),), ValueError, "graph must have at most 100 vertices to be drawn, got 144"),
        (([1, 2],), TypeError, "graph must be a mapping"),
    ],
)
def test_bad_input_is_named(arguments, error, text):
    with pytest.raises(error, match=text):
        pebbles(*arguments)


def test_it_can_be_drawn_while_a_check_runs(monkeypatch):
    monkeypatch.setattr(MODULE, "optimum", optimum)
    with solutions_blocked():
        assert pebbles(dot(2), moves=["load a1"], M=3).alt
        with pytest.raises(LibrarySolutionUsed):
            pebble_player()


def test_red_pebbles_differ_from_none_without_colour():
    def grey(colour):
        return sum(w * int(colour[k : k + 2], 16) for w, k in ((0.21, 1), (0.72, 3), (0.07, 5)))

    assert grey(PAPER) - grey(VERMILION) > 100


def test_a_chosen_vertex_is_ringed_and_said():
    play = Play(Game(dot(2), 3), DOT.replay(), 3)
    plain, chosen = draw_pebbles(play), draw_pebbles(play, "p2")
    assert chosen.alt == f"{plain.alt} Chosen: p2." and chosen.numbers == plain.numbers
    ring, in_legend = (e for e in chosen.elements if isinstance(e, Poly) and e.stroke == BLUE and e.line == 3)
    x, y = places_of(dot(2))["p2"]
    assert ring.points[0] == (x + RADIUS + 6, y) and in_legend.points[0][0] > ring.points[0][0]
    assert "the selected vertex" in texts(chosen) and "the selected vertex" not in texts(plain)
    check_layout(chosen)


# ---------------------------------------------------------------------- the explorer
@pytest.fixture
def player():
    """Return a new explorer."""
    return pebble_player()


def click(player, vertex):
    """Click on a vertex of the figure, slightly off its centre."""
    x, y = places_of(player.game.graph)[vertex]
    player.touched("down", x + 9, y - 9)
    player.touched("up", x + 9, y - 9)


def buttons(player):
    """Return the moves offered as buttons for the selected vertex."""
    controls = player.controls.items()
    return {name for name, one in controls if one.kind == "button" and not one.hidden} - {"undo", "restart"}


def test_it_plays_the_optimum(player):
    assert repr(player) == "explore.pebble_player(M=3, recompute=True, slide=False)  # preset='dot, d = 2'"
    assert player.moves == [str(move) for move in DOT.moves]
    assert "<b>7 words moved with M = 3, the minimum.</b>" in player.words
    assert list(player.controls["step"].options.values()) == list(range(16))
    for step in (1, 6, 15):
        player.set("step", step)
        assert player.svg == pebbles(DOT, step).to_svg()
    player.set("step", 1)
    assert player.page()["spoken"] == "a1 is loaded into fast memory: 1 word. 1 word moved so far."


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_played_to_the_end(player, name):
    player.set("preset", name)
    game = player.game
    assert game.graph == PRESETS[name][0] and game.slide == PRESETS[name][1]
    rules = {"recompute": True, "slide": game.slide, "max_states": MODULE.STATES}
    best = MODULE.optimum(game.graph, game.M, **rules)
    assert f"{best.cost} words moved with M = {game.M}" in player.words
    assert list(player.controls["step"].options.values()) == list(range(len(best.moves) + 1))
    assert list(player.controls["vertex"].options.values()) == list(game.graph.vertices)


def test_the_rules_change_the_optimum(player):
    for name, value, cost in (("preset", "softmax row, n = 3", 8), ("recompute", False, 10), ("M", 4, 8)):
        player.set("step", 3)
        player.set(name, value)
        assert f"<b>{cost} words moved" in player.words
        assert player.value("step") == 0
    player.set("slide", True)
    assert min(player.controls["M"].options.values()) == player.game.smallest_M == 2
    assert player.value("M") == 4
    player.set("M", 2)
    player.set("slide", False)
    assert min(player.controls["M"].options.values()) == player.value("M") == 3


def test_a_pebbling_is_looked_for_once(player, monkeypatch):
    player.set("M", 4)
    monkeypatch.setattr(MODULE, "optimum", lambda *_, **__: pytest.fail("looked again"))
    player.set("M", 3)
    player.set("M", 4)
    assert "5 words moved with M = 4" in player.words


def test_it_says_when_it_is_looking(player, monkeypatch):
    said, widget = [], player.widget
    monkeypatch.setattr(MODULE, "solve", lambda game: said.append(dict(widget.page)) or solve(game))
    before = widget.page
    player.set("M", 5)
    ((page),) = said
    assert "Searching for an optimal pebbling" in page["words"]
    assert page == before | {"words": page["words"]}, "what is seen stays, and the question unanswered"
    assert "Searching" not in player.words and "Searching" not in widget.page["words"]


@given(st.data())
@settings(max_examples=many(5, 15))
def test_each_vertex_offers_what_is_legal_there_or_says_why_nothing_is(data):
    name = data.draw(st.sampled_from(list(PRESETS)))
    player = pebble_player(PRESETS[name][0], 4, data.draw(st.booleans()), data.draw(st.booleans()))
    player.set("mode", OWN)
    for _ in range(8):
        legal = player.game.legal(player._play().state)
        for vertex in player.game.graph.vertices:
            player.set("vertex", vertex)
            here = {str(move) for move in legal if move.vertex == vertex}
            assert buttons(player) == here == set(player.buttons) - {"undo", "restart"}
            spoken = player.page()["spoken"]
            assert all(move in spoken for move in here) and (
                bool(here) or f"No legal move at {vertex}: " in spoken
            )
        chosen = data.draw(st.sampled_from(sorted(legal, key=str)))
        player.set("vertex", chosen.vertex)
        player.press(str(chosen))
        assert player.moves[-1] == str(chosen)
        states = pebbling.replay(player.game.graph, player.moves, 4, slide=player.game.slide)
        assert states[-1] == player._play().state
        assert player.svg == player.shown().picture.to_svg()


@given(st.data())
@settings(max_examples=15)
def test_a_click_makes_the_one_legal_move_and_of_several_none(data):
    player = pebble_player(dot(2), 3, data.draw(st.booleans()), data.draw(st.booleans()))
    for vertex in data.draw(st.lists(st.sampled_from(dot(2).vertices), min_size=1, max_size=9)):
        before, own = player._own[-1], list(player._own)
        legal = [move for move in player.game.legal(before) if move.vertex == vertex]
        click(player, vertex)
        assert player.value("mode") == OWN and player.value("vertex") == vertex
        made = [player.game.after(before, legal[0])] if len(legal) == 1 else []
        assert player._own == [*own, *made]
        if len(legal) > 1:
            assert buttons(player) == set(map(str, legal))
            player.press(str(data.draw(st.sampled_from(legal))))


def test_a_click_beside_the_vertices_does_nothing_and_each_vertex_can_be_grabbed(player):
    before = player.page()
    player.touched("down", 1, 1)
    assert player.page() == before
    grabs, places = list(player.grabs), places_of(player.game.graph).values()
    assert [(grab.x + RADIUS, grab.y + RADIUS) for grab in grabs] == list(places)


def hanging(player):
    """Return the buttons attached to a point of the figure, with the point."""
    return {name: one.hangs for name, one in player.controls.items() if one.hangs}


def test_the_buttons_hang_from_the_vertex_while_a_click_waits_for_a_choice(player):
    for vertex in ("a1", "b1", "p1", "p2"):
        click(player, vertex)
        assert not hanging(player)
    click(player, "p1")
    x, y = places_of(player.game.graph)["p1"]
    assert list(hanging(player)) == ["store p1", "delete p1"]
    for left, top in hanging(player).values():
        assert left == x and y + RADIUS < top < y + 2 * RADIUS
    assert len({player.controls[name].group for name in hanging(player)}) == 1
    assert list(player.controls).index("store p1") == list(player.controls).index("vertex") + 1
    player.press("store p1")
    assert not hanging(player) and buttons(player) == {"delete p1"}


def test_a_game_of_ones_own_is_finished_and_compared(player):
    player.set("mode", OWN)
    assert "Your game: 0 words moved; the minimum is 7." in player.words
    assert "Still to be stored: s." in player.words
    for move in ("load a1", "delete a1", *DOT.moves):
        player.choose(move)
    assert "<b>Finished: 8 words moved; the minimum is 7.</b>" in player.words
    assert not buttons(player)
    player.press("restart")
    for move in DOT.moves:
        player.set("vertex", move.vertex)
        player.press(str(move))
    assert "<b>Finished: 7 words moved, the minimum.</b>" in player.words
    player.press("undo")
    assert "Undone: store s." in player.words and len(player.moves) == 14


def test_undo_and_restart(player):
    player.set("mode", OWN)
    player.press("undo")
    assert "Nothing to undo." in player.words and player.moves == []
    click(player, "a1")
    click(player, "b1")
    player.press("undo")
    assert player.moves == ["load a1"]
    player.press("restart")
    assert player.moves == [] and player._play().state == player.game.start()


def test_an_illegal_move_changes_nothing_and_says_why(player):
    player.set("mode", OWN)
    message = {"do": "press", "name": "load a1"}
    player._heard(player.widget, {"turn": "me 1", **message}, [])
    player._heard(player.widget, {"turn": "me 2", **message}, [])  # before the page has taken the button away
    assert player.moves == ["load a1"] and player.widget.page["turn"] == "me 2"
    with pytest.raises(IllegalMove, match="compute p1: its parent b1 has no red pebble"):
        player.choose("compute p1")
    with pytest.raises(ValueError, match="unknown button 'compute p1'; expected one of delete a1"):
        player.press("compute p1")
    click(player, "p1")
    assert "No legal move at p1: its parent b1 has no red pebble." in player.words
    for vertex in ("b1", "a2", "b2"):
        click(player, vertex)
    assert "No legal move at b2: all M = 3 red pebbles are in use: a1, a2, b1." in player.words
    assert player.moves == ["load a1", "load b1", "load a2"]


def test_each_mode_keeps_its_place(player):
    player.set("step", 5)
    player.set("mode", OWN)
    player.choose("load b2")
    player.set("mode", OPTIMUM)
    assert player._play().state == DOT.replay()[5]
    player.set("mode", OWN)
    assert player.moves == ["load b2"]


def test_what_is_not_of_the_mode_is_out_of_view(player):
    mine = {"vertex", "undo", "restart"}
    for mode, hidden in ((OPTIMUM, mine), (OWN, {"step"})):
        player.set("mode", mode)
        assert {name for name, control in player.controls.items() if control.hidden} == hidden


def test_what_is_lost_in_the_one_shot_game_is_said():
    player = pebble_player(dot(2), recompute=False)
    player.set("mode", OWN)
    for move in ("load a1", "load b1", "compute p1"):
        player.choose(move)
    assert player.game.lost(player._play().state) == []
    player.choose("delete p1")
    assert player.game.lost(player._play().state) == ["p1"]
    assert "p1 was deleted before it was stored and cannot be recomputed. Undo some moves." in player.words
    assert Game(dot(2), 3).lost(player._play().state) == []


def test_a_graph_or_a_pebbling_of_ones_own():
    player = pebble_player({"a": [], "b": [], "c": ["a", "b"]})
    assert player.value("preset") == OWN_GRAPH and player.moves[-1] == "store c"
    played = pebble_player(optimum(LARGE, 9, slide=True))
    assert played.game == Game(LARGE, 9, slide=True) and "10 words moved" in played.words
    with pytest.raises(NoPebbling, match="M must be at least 3"):
        pebble_player(M=2)


def test_where_the_search_is_given_up_one_can_still_play(monkeypatch):
    monkeypatch.setattr(MODULE, "STATES", 3)
    player = pebble_player(PRESETS["attention 2 x 2, FMA"][0], slide=True)
    assert (
        "No optimal pebbling was found. You can try yourself." in player.words
        and "3 states were examined" in player.words
    )
    assert player.picture == pebbles(player.game.graph, M=3, slide=True)
    click(player, "q1")
    assert player.moves == ["load q1"]
    assert f"the minimum is at least {pebbling.compulsory(player.game.graph)}" in player.words
    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    assert "the start" in pebble_player(LARGE, slide=True).title


def test_a_notebook_keeps_the_last_picture(player):
    data, metadata = player._repr_mimebundle_()
    assert isinstance(player, PebblePlayer) and data["text/plain"] == pebbles(DOT).text
    assert metadata["image/png"]["alt"] == pebbles(DOT).alt
