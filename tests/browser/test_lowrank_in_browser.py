"""The low-rank explorer in JupyterLab and a real Chromium, moved with the keyboard."""

from test_gpu_explorers import Page

from iocourse import explore


def test_the_low_rank_explorer_follows_keys_and_the_mouse(shown, title_stopwatch, capsys):
    page = Page(shown("low_rank", "explore.low_rank_explorer(3, 4096, 16384, B=0.5)"))
    assert page.title() == explore.low_rank_explorer_picture(3, 4096, 16_384, B=0.5).title
    page.says("Low rank: it moves")

    assert page.press("degree g", "ArrowRight").startswith("Hermite of degree 4")
    assert "d = 8" in page.press("d (columns)", "ArrowLeft")
    assert "n = 8,192" in page.press("n (tokens)", "ArrowRight")
    assert "M = 8,192" in page.press("M (words)", "ArrowLeft")
    assert "B = 0.595" in page.press("B (of entries)", "ArrowRight")
    assert page.press("σ (of logits)", "ArrowRight").endswith("Gaussian, σ = 0.4")
    assert page.choose("minimax").startswith("Minimax")
    expected = explore.low_rank_explorer_picture(
        4, 8192, 8192, d=8, polynomial="minimax", B=0.595, sigma=0.4
    ).alt
    assert expected in page.picture.inner_html().replace("&gt;", ">")

    assert page.choose("head 0.2").endswith("head 0.2 of MiniLM")
    page.says("Exact attention")
    before = page.title()
    assert page.choose("cover the data") != before
    page.says("The sampled logits are within R")
    page.choose("Gaussian")
    dragged = page.drag("n (tokens)", -100)
    n = int(dragged.split("n = ")[1].split(", M")[0].replace(",", ""))
    assert n < 8192
    page.says("Exact attention" if "Exact attention" in page.words.inner_text() else "Low rank")
    page.latency(title_stopwatch, capsys, "n (tokens)", "low-rank explorer, key press to pixels")
