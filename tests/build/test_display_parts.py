"""The statements of a display and their conditions."""

from tools.build.rules.display_parts import statements_of


def test_both_relations_of_a_chain_are_conditions():
    (bound,) = statements_of(r"W \ge Nd \qquad \text{if } d < M \le N")
    assert [(one.left, one.sign, one.right) for one in bound.conditions] == [
        (["d"], "<", ["M"]),
        (["M"], "<=", ["N"]),
    ]
