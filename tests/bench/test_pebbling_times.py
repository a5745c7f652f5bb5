"""The benchmark of exact pebbling reports its measurements; times are not asserted."""

import json

from tools.bench import pebbling
from tools.bench.__main__ import SUBJECTS, main


def test_the_record_and_its_table(tmp_path, capsys):
    file = tmp_path / "pebbling.json"
    assert main(["pebbling", "--quick", "--json", str(file)]) == 0
    record = json.loads(file.read_text(encoding="utf-8"))
    assert SUBJECTS["pebbling"] is pebbling
    words = {(one["graph"], one["M"]): one["words"] for one in record["measured"]}
    assert words["softmax row of 4", 3] == 11 and words["2×2×2 matmul, fma", 6] == 12
    assert all(one["states"] > 0 and one["words"] >= one["compulsory"] for one in record["measured"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "2×2×2 matmul, fma 16 vertices M=3 17 words (compulsory 12)" in shown
