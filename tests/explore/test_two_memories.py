"""Tests of `two_memories_picture`: the real runs word by word, the animation, and the player."""

import struct
from base64 import b64decode
from functools import cache
from importlib import resources
from io import BytesIO

import numpy as np
import pytest
from figure_layout import check_layout, texts
from PIL import Image

from iocourse import costs, exact, schedules
from iocourse.course.explore import TwoMemories, two_memories, two_memories_picture
from iocourse.course.explore.draw.palette import BLUE, ORANGE
from iocourse.course.explore.draw.picture import Picture, Rect
from iocourse.course.explore.figures.two_memories import (
    ARRAYS,
    FILM,
    FLASH,
    FLIGHT,
    NAIVE,
    STEP,
    D,
    M,
    N,
    arrived,
    last_step,
    sides,
    steps_of,
    two_memories_words,
)
from iocourse.course.explore.models.memory_states import Change, sample_run
from tools import film

SHIPPED = resources.files("iocourse.course.explore").joinpath(FILM).read_bytes()


def closed_form(name):
    return schedules.get(name).cost(N, D, **schedules.get(name).tiles(N, D, M))


# ---------------------------------------------------------------------- the runs
@pytest.mark.parametrize("name", [NAIVE, FLASH, "flash_optimal"])
def test_every_word_of_the_ledger_is_one_word_of_the_journey(name):
    done = sample_run(name, N, D, M)
    assert done.ledger == closed_form(name)
    loaded = [word.array for word in done.words if word.loaded]
    assert {array: loaded.count(array) for array in done.ledger.reads} == done.ledger.reads
    assert len(done.words) - len(loaded) == done.ledger.written
    assert max(len(done.held(after)) for after in range(len(done.words))) <= done.ledger.peak <= M
    assert done.held(len(done.words)) == {}
    places = {(word.array, word.row, word.column) for word in done.words}
    assert len(places) == sum(done.ledger.sizes.values())  # every word of every array has moved


def test_a_word_lies_in_the_cell_it_is_said_to_lie_in():
    """A load fills a free cell; a stored word is still in its cell at that time."""
    done = sample_run(FLASH, N, D, M)
    for number in range(0, len(done.words), 7):
        word = done.words[number]
        if word.loaded:
            assert Change(number + 1, word.cell, word.array) in done.changes
            assert word.cell not in done.held(number)
        else:
            assert done.held(number)[word.cell] == "accumulator"


def test_both_runs_give_the_same_result_and_it_is_attention():
    naive, flash = (side.run.output for side in sides())
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, D))
    assert np.allclose(naive, flash) and np.allclose(naive, exact.softmax(Q @ K.T / np.sqrt(D)) @ V)


# ---------------------------------------------------------------------- the picture
def test_the_last_picture_says_what_the_closed_forms_say():
    rows = [line.split() for line in two_memories_picture().numbers.splitlines()[1:]]
    for column, name in enumerate((NAIVE, FLASH), start=1):
        least = closed_form(name)
        said = {row[0]: int(row[column].replace(",", "")) for row in rows}
        moved = {array: least.reads.get(array, 0) + least.writes.get(array, 0) for array in ARRAYS}
        assert said == moved | {"total": least.total}
    naive, flash = closed_form(NAIVE).total, closed_form(FLASH).total
    assert f"{naive:,} words moved, or {flash:,}" in two_memories_picture().title
    assert f"done: {4 * N * N:,} of these words are S and P" in texts(two_memories_picture())
    assert closed_form(NAIVE) == costs.naive(N, D, Br=32, Bc=32, Bm=32, Bn=4)


def test_time_is_words_the_same_on_both_sides_until_one_is_done():
    naive, flash = sides()
    for step in range(last_step() + 1):
        left = step * STEP - FLIGHT
        assert arrived(flash, step) == min(max(left, 0), flash.words)
        assert arrived(naive, step) == min(max(left, 0), naive.words)
        assert f"{arrived(naive, step):,} words" in texts(two_memories_picture(step))
        assert f"{naive.called} {arrived(naive, step):,} words" in two_memories_words(step)[0]
    assert steps_of(flash) < steps_of(naive) == last_step()
    assert two_memories_picture(last_step()) == two_memories_picture()


@pytest.mark.parametrize("step", range(0, last_step() + 1, 9))
def test_no_text_lies_on_another_on_the_way(step):
    check_layout(two_memories_picture(step))


@pytest.mark.parametrize(
    ("step", "error"), [(-1, ValueError), (last_step() + 1, ValueError), (0.5, TypeError), ("3", TypeError)]
)
def test_a_step_that_is_none_is_named(step, error):
    with pytest.raises(error, match="step"):
        two_memories_picture(step)


# ---------------------------------------------------------------------- the film
opening = cache(film.opening)


def chunks(png):
    """Yield kind and body of each chunk."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def shown(png, number):
    """Return a frame of an animation as a viewer composes it."""
    image = Image.open(BytesIO(png))
    image.seek(number)
    return np.asarray(image.convert("RGB")).astype(int)


def test_the_shipped_film_is_small_and_stops():
    assert len(SHIPPED) <= 300_000
    (frames, plays) = struct.unpack(">II", next(body for kind, body in chunks(SHIPPED) if kind == b"acTL"))
    assert frames == len(opening()) == 89 and plays == film.PLAYS
    times = [struct.unpack(">H", body[20:22])[0] for kind, body in chunks(SHIPPED) if kind == b"fcTL"]
    assert times == [frame.ms for frame in opening()]
    assert sum(times[1:]) / 1000 == pytest.approx(18.5, abs=1)  # seconds
    kinds = [kind for kind, _ in chunks(SHIPPED)]
    assert kinds.index(b"fcTL") < kinds.index(b"IDAT") < kinds.index(b"fdAT")  # the first frame is the still
    assert not {b"tEXt", b"iTXt", b"tIME"} & set(kinds)


@pytest.mark.parametrize("number", [0, 1, 12, 28, 60, 88])
def test_the_shipped_film_is_what_the_runs_draw_today(number):
    """99 of 100 pixels must agree: the palette is smaller, and text differs slightly between machines."""
    drawn = opening()[number].picture.to_pixels(film.SCALE).astype(int)
    assert (np.abs(drawn - shown(SHIPPED, number)).max(axis=2) < 24).mean() > 0.99


def test_the_first_frame_is_the_end():
    assert opening()[0].picture == opening()[-1].picture == two_memories_picture()
    assert (shown(SHIPPED, 0) == shown(SHIPPED, 88)).all()


def squares(colour, x):
    """Return a small figure."""
    return Picture(40, 30, "T", "A.", "1", (Rect(x, 8, 8, 8, colour),))


def test_a_film_composes_to_its_pictures_and_is_the_same_on_every_call():
    frames = [film.Frame(squares(*at), 50) for at in ((BLUE, 8), (BLUE, 16), (BLUE, 16), (ORANGE, 24))]
    png = film.film(frames, plays=1)
    assert png == film.film(frames, plays=1)
    for number, frame in enumerate(frames):
        assert (shown(png, number) == frame.picture.to_pixels(film.SCALE)).all()


def test_a_film_of_nothing_or_of_several_sizes_is_refused():
    wide = film.Frame(Picture(50, 30, "T", "A.", "1", ()), 9)
    for frames in ([], [film.Frame(squares(BLUE, 8), 9), wide]):
        with pytest.raises(ValueError, match="frames must be one or more pictures of one size, got "):
            film.film(frames)


# ---------------------------------------------------------------------- the player
def test_it_starts_before_the_first_word_and_steps_to_the_last():
    player = two_memories()
    assert isinstance(player, TwoMemories) and player.state.step == 0
    assert "Press play" in player.words
    assert list(player.controls["step"].options.values()) == list(range(last_step() + 1))
    player.set("step", 4)
    assert player.picture == two_memories_picture(4)
    player.set("step", last_step())
    assert player.state.step == last_step() and "the ratio is 6.0" in player.words


def test_without_a_kernel_the_film_is_seen():
    data, metadata = two_memories()._repr_mimebundle_()
    assert b64decode(data["image/png"]) == SHIPPED
    assert metadata["image/png"]["alt"] == two_memories_picture().alt
