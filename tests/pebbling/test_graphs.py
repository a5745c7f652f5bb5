"""Graphs for the pebble game: those of the course, user-defined ones, and errors for invalid ones."""

import pytest

from iocourse.pebbling import Graph, attention, compulsory, cost_of, dot, matmul, optimum, softmax_row


@pytest.mark.parametrize(
    "graph, vertices, words",
    [
        (dot(2), 7, 5),
        (dot(3), 11, 7),
        (softmax_row(3), 11, 6),
        (softmax_row(4), 15, 8),
        (matmul(2, 2, 2), 20, 12),
        (matmul(2, 2, 2, fma=True), 16, 12),
        (matmul(2, 3, 4), 6 * 7 + 8 + 12, 8 + 12 + 6),
        (attention(2, 2), 20, 8),
        (attention(2, 2, fma=True), 18, 8),
        (matmul(3, 2, 2, fma=True), 22, 16),
        (matmul(2, 2, 3, fma=True), 24, 16),
        (matmul(3, 3, 2, fma=True), 30, 21),
        (attention(2, 3, fma=True), 26, 10),
        (attention(3, 2, fma=True), 25, 10),
        (attention(2, 2, d=2, fma=True), 34, 16),
    ],
)
def test_sizes_of_the_course_s_graphs(graph, vertices, words):
    assert len(graph) == vertices
    assert compulsory(graph) == words == len(graph.inputs) + len(graph.outputs)


def test_one_of_each():
    assert [len(graph) for graph in (dot(1), softmax_row(1), matmul(1, 1, 1), attention(1, 1))] == [
        3,
        3,
        3,
        6,
    ]
    assert len(matmul(11, 1, 11).vertices) == 121 + 11 + 11 * 21
    with pytest.raises(ValueError, match="keys must be at least 1"):
        attention(2, 0)


def test_names_say_what_is_computed():
    plain, fused = matmul(2, 2, 2), matmul(2, 2, 2, fma=True)
    assert plain.parents["C12"] == ("p12_1", "p12_2") and plain.parents["p12_2"] == ("A12", "B22")
    assert fused.parents["C12"] == ("C12_1", "A12", "B22")
    assert attention(2, 2).parents["o2"] == ("n2", "l2")


def test_views_of_a_graph():
    graph = Graph.of({"c": ["a", "b"], "a": [], "b": [], "d": ["c"], "idle": ["b"]}, outputs=["d"])
    assert graph.inputs == ("a", "b") and graph.outputs == ("d",)
    assert graph.levels == (("a", "b"), ("c", "idle"), ("d",))
    assert graph.children["b"] == ("c", "idle")
    assert graph.needed == ("c", "a", "b", "d")
    assert compulsory(graph) == 3
    assert Graph.of(graph, outputs=["c"]).outputs == ("c",) and Graph.of(graph) is graph


def test_what_no_output_needs_costs_nothing():
    graph = Graph.of({"a": [], "b": [], "c": ["a"], "unused": ["b"]}, outputs=["c", "a"])
    found = optimum(graph, 2)
    assert found.cost == compulsory(graph) == cost_of(graph, found.moves, 2) == 2


@pytest.mark.parametrize(
    "graph, error, message",
    [
        ({}, ValueError, "no vertices"),
        ({"c": ["a"]}, ValueError, "c has the parent a, which is not a vertex of the graph"),
        ({"a": [], "c": ["a", "a"]}, ValueError, "c has the parent a twice"),
        ({"a": ["c"], "b": ["a"], "c": ["b"]}, ValueError, "cycle: .* → "),
        ({"a": ["a"]}, ValueError, "cycle: a → a"),
        ({"a": [], "c": [["a"]]}, TypeError, r"c has the parent \['a'\]"),
        ({"a": [], "c": "a"}, TypeError, "parents of c must be a list"),
        ({"a": 3}, TypeError, "parents of a must be a list"),
        ([("a", [])], TypeError, "mapping vertex → parents, a networkx DiGraph or a Graph, got list"),
    ],
)
def test_what_is_no_graph(graph, error, message):
    with pytest.raises(error, match=message):
        Graph.of(graph)


@pytest.mark.parametrize(
    "outputs, message", [(["z"], "outputs names z"), (["a", "a"], "a twice"), ([], "at least")]
)
def test_outputs_are_vertices(outputs, message):
    with pytest.raises(ValueError, match=message):
        Graph.of({"a": []}, outputs)


class LikeDiGraph:
    """Object with the two attributes of a networkx.DiGraph that Graph.of reads."""

    def __init__(self, edges):
        self.edges = edges
        self.nodes = sorted({v for edge in edges for v in edge})

    def predecessors(self, vertex):
        return (a for a, b in self.edges if b == vertex)


EDGES = [("a", "c"), ("b", "c"), ("c", "d")]


def test_a_graph_with_predecessors():
    graph = Graph.of(LikeDiGraph(EDGES))
    assert graph.parents == {"a": (), "b": (), "c": ("a", "b"), "d": ("c",)}
    assert optimum(LikeDiGraph(EDGES), 3).cost == 3


def test_a_networkx_graph():
    networkx = pytest.importorskip("networkx")
    assert Graph.of(networkx.DiGraph(EDGES)).parents == {"a": (), "b": (), "c": ("a", "b"), "d": ("c",)}
    with pytest.raises(TypeError, match="networkx DiGraph"):
        Graph.of(networkx.Graph(EDGES))
