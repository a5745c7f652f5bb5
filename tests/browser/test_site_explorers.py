"""Tests of the explorers in the built site, which need no kernel: numbers against the library, user input."""

import random
import re
from collections import Counter

import pytest
from built_site import shared_site  # noqa: F401
from opened_pages import served
from page_audit import PIXEL, luminance, ratio, spoken

from iocourse import bounds, costs, schedules
from iocourse.course.explore.figures.traffic_map import times
from iocourse.course.explore.models import memory_regimes as map_facts
from iocourse.course.explore.models import tile_tuner as tuner_facts
from iocourse.course.explore.models.schedule_selection import ROW_TILED, select_schedules

pytestmark = pytest.mark.timeout(900)  # whoever needs the site first builds it
PASSES = ("forward", "backward", "gradient")
WAIT = 120_000  # milliseconds


@pytest.fixture(scope="module")
def address(site):
    """Return the address of the built site."""
    with served(site) as found:
        yield found


@pytest.fixture
def opened(chromium, address):
    """Return a function: "map.html#N=64" → drawn page. An error in a page fails the test at its end."""
    contexts, complaints = [], []

    def open_page(place, width=900, **looks):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **looks))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/explore/{place}")
        page.locator("[role=status]").filter(has_text="words").wait_for(timeout=WAIT)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


# ---------------------------------------------------------------------- the numbers
NUMBERS = """async ({points, cut, tuned}) => {
    const from = name => import(`/_static/${name}.js`);
    const [{PASSES, move, moves, schedule, tuned: tune, bestTiles}, {BOUNDS, boundAt, bestBound}] =
        await Promise.all([from('schedules'), from('bounds')]);
    const all = Object.values(PASSES).flatMap(Object.keys);
    const bounds = Object.keys(BOUNDS).flatMap(pass => BOUNDS[pass].map(({id}) => [pass, id]));
    return {
        moves: points.map(at => all.map(name => move(name, ...at))),
        bounds: points.map(at => bounds.map(([pass, id]) => boundAt(pass, id, ...at))),
        best: points.map(at => Object.keys(BOUNDS).map(pass => bestBound(pass, ...at))),
        ranked: points.map(at => Object.values(PASSES).map(pass =>
            moves(Object.keys(pass), ...at).map(({name}) => name))),
        cut: cut.map(([name, N, d, tiles]) => schedule(name).cost(N, d, tiles)),
        tuned: tuned.map(([name, N, d, M, Br, Bc]) =>
            [tune(name, N, d, M, Br, Bc), bestTiles(name, N, d, M)]),
    };
}"""
SIZES = (1, 2, 3, 7, 16, 61, 100, 255, 256, 257, 1000)
DEPTHS = (1, 2, 3, 5, 16, 21, 64, 77, 128, 256)


def grid_of(rng):
    """Return (N, d, M): sizes with and without remainders, M from 1 word to more than all arrays."""
    some = [(rng.choice(SIZES), rng.choice(DEPTHS), round(2 ** rng.uniform(0, 20))) for _ in range(90)]
    some += [
        (1000, d, k * d * d - 4 + off) for d, k, off in ((16, 1, 0), (16, 1, 1), (77, 1, -1), (16, 3, 0))
    ]
    even = [(1024, 64, 2**k) for k in range(2, 21, 3)] + [(4096, 64, 64**2 * k) for k in (1, 4)]
    return [*some, *even, (2**16, 256, 4), (2**16, 256, 2**27)]


def dense():
    """Return all schedules of the passes, in the order of the registry."""
    return [schedule for pass_ in PASSES for schedule in schedules.of_pass(pass_)]


def cut_of(rng):
    """Yield (schedule, N, d, tiles) with random tiles, also larger than the arrays."""
    for schedule in dense():
        for _ in range(40):
            N, d = rng.choice(SIZES), rng.choice(DEPTHS)
            yield schedule.name, N, d, {tile: rng.randint(1, 2 * max(N, d)) for tile in schedule.tile_names}


def tuned_of(rng):
    """Yield random (schedule, N, d, M, Br, Bc) of the tile tuner, which need not fit."""
    for name in ROW_TILED:
        for _ in range(20):
            N, d, M = rng.choice(SIZES), rng.choice(DEPTHS), round(2 ** rng.uniform(3, 19))
            yield name, N, d, M, rng.randint(1, N), rng.randint(1, N)


def ledger_of(found):
    """Return reads and writes by array without zeros, and the footprint, of a page or library ledger."""
    reads, writes, peak = (
        (found["reads"], found["writes"], found["footprint"])
        if isinstance(found, dict)
        else (found.reads, found.writes, found.peak)
    )
    return {k: n for k, n in reads.items() if n}, {k: n for k, n in writes.items() if n}, peak


@pytest.fixture(scope="module")
def grid():
    rng = random.Random(18)
    return {"points": grid_of(rng), "cut": list(cut_of(rng)), "tuned": list(tuned_of(rng))}


@pytest.fixture(scope="module")
def page_numbers(chromium, address, grid):
    """Return the numbers that the page computes on the grid."""
    page = chromium.new_page()
    page.goto(f"{address}/explore/map.html")
    yield page.evaluate(NUMBERS, grid)
    page.close()


def test_a_schedule_moves_the_words_of_the_library_in_the_tiles_it_picks(grid, page_numbers):
    for at, row in zip(grid["points"], page_numbers["moves"], strict=True):
        for schedule, found in zip(dense(), row, strict=True):
            expected = map_facts.move(schedule.name, *at)
            said = found and (found["name"], found["tiles"], found["total"], found["footprint"])
            assert said == (expected and (schedule.name, dict(expected.tiles), *expected[2:])), (schedule, at)
    for at, row in zip(grid["points"], page_numbers["ranked"], strict=True):
        for pass_, ranked in zip(PASSES, row, strict=True):
            expected = map_facts.schedules_by_traffic(schedules.of_pass(pass_), *at)
            assert ranked == [found.schedule.name for found in expected], (pass_, at)


def test_closed_forms_are_those_of_costs_array_for_array(grid, page_numbers):
    for (name, N, d, tiles), found in zip(grid["cut"], page_numbers["cut"], strict=True):
        expected = costs.form_of(name)(N, d, **tiles)
        assert ledger_of(found) == ledger_of(expected), (name, N, d, tiles)
        assert found["total"] == expected.total, (name, N, d, tiles)


def test_bounds_are_those_of_bounds(grid, page_numbers):
    ids = [name for pass_ in PASSES for name in map_facts.bounds_of(pass_)]
    for at, row in zip(grid["points"], page_numbers["bounds"], strict=True):
        expected = {name: map_facts.bound_at(name, *at) for name in ids}
        assert dict(zip(ids, row, strict=True)) == expected, at
    for at, row in zip(grid["points"], page_numbers["best"], strict=True):
        for pass_, best in zip(PASSES, row, strict=True):
            words, name = bounds.lower_bound(pass_, *at)
            assert best == {"words": words, "title": bounds.BOUNDS[name].title}, (pass_, at)


def test_tiles_a_reader_picks_and_the_best_ones_are_the_tuner_s(grid, page_numbers):
    for (name, N, d, M, Br, Bc), (found, best) in zip(grid["tuned"], page_numbers["tuned"], strict=True):
        setting = tuner_facts.TileTunerState(N, d, M, Br, Bc, name)
        assert ledger_of(found) == ledger_of(tuner_facts.tile_ledger(setting)), setting
        expected = tuner_facts.best_tiles(name, N, d, M)
        assert best == (expected and list(expected)), setting


def test_every_number_is_exact(page_numbers):
    """Numbers are below 2^53, the limit of exact integers in JavaScript, for all sizes of the controls."""
    totals = [move["total"] for row in page_numbers["moves"] for move in row if move]
    assert 2**42 < max(totals) < 2**47
    assert max(n for row in page_numbers["bounds"] for n in row) < 2**47


OFFERED = """async () => {
    const {PASSES, ROW_TILED} = await import('/_static/schedules.js');
    const {BOUNDS, USUAL} = await import('/_static/bounds.js');
    const {REGIMES, memories} = await import('/_static/map_facts.js');
    const rows = each => Object.entries(each).map(([name, {title, givenWeights, tileNames}]) =>
        [name, title, Boolean(givenWeights), tileNames]);
    const named = each => each.map(({id, label, title}) => [id, label, title]);
    return {
        schedules: Object.keys(PASSES).map(pass => rows(PASSES[pass])),
        bounds: Object.keys(PASSES).map(pass => named(BOUNDS[pass])),
        usual: Object.keys(PASSES).map(pass => USUAL[pass]),
        regimes: Object.keys(PASSES).map(pass => REGIMES[pass]),
        rowTiled: ROW_TILED,
        memories: memories(4, 8 * 4096 * 64 + 1),
    };
}"""
AREAS = """async views => {
    const {regimesOf, reignsOf} = await import('/_static/map_facts.js');
    return views.map(({range, ...view}) =>
        [regimesOf, reignsOf].map(known => known(view, range).map(Object.values)));
}"""
VIEWS = (
    (
        "forward",
        4096,
        64,
        (4, 8 * 4096 * 64),
        ["naive", "flash2", "flash_optimal", "small_cache", "resident_keys"],
    ),
    ("forward", 100, 16, (4, 700), ["scores_stored", "flash1"]),
    ("backward", 1000, 32, (4, 10**6), [s.name for s in schedules.of_pass("backward")]),
    ("backward", 64, 64, (4, 9), []),
    ("gradient", 1000, 32, (4, 8 * 1000 * 32), [s.name for s in schedules.of_pass("gradient")]),
    ("forward", 256, 16, (4, 2000), [s.name for s in schedules.of_pass("forward")]),
)


def test_it_offers_what_the_library_has_under_the_same_names(opened):
    """A new dense schedule, or a bound with constants, must be added to docs/explore/static."""
    offered = opened("map.html").evaluate(OFFERED)
    for at, pass_ in enumerate(PASSES):
        known = schedules.of_pass(pass_)
        assert offered["schedules"][at] == [
            [s.name, s.title, s.given_weights, list(s.tile_names)] for s in known
        ]
        assert offered["bounds"][at] == [
            [name, map_facts.bound_label(name), bounds.BOUNDS[name].title]
            for name in map_facts.bounds_of(pass_)
        ]
        assert offered["usual"][at] == list(map_facts.usual_bounds(pass_))
        regimes, pieces = offered["regimes"][at], map_facts.cost_envelope(pass_)
        assert regimes["borders"] == pytest.approx(map_facts.regime_borders(pass_))
        assert regimes["words"] == [map_facts.leading_words(piece) for piece in pieces]
        assert regimes["least"] == map_facts.COMPULSORY_WORDS[pass_]
    assert offered["rowTiled"] == list(ROW_TILED)
    assert offered["memories"] == list(map_facts.memories(4, 8 * 4096 * 64 + 1))


def test_regimes_and_reigns_are_those_of_the_library_s_map(opened):
    views = [
        {"pass": pass_, "N": N, "d": d, "range": ends, "schedules": names}
        for pass_, N, d, ends, names in VIEWS
    ]
    found = opened("map.html").evaluate(AREAS, views)
    for (pass_, N, d, ends, names), (areas, best_schedule_ranges) in zip(VIEWS, found, strict=True):
        asked = select_schedules(pass_, names)
        least = min((s.smallest_M(N, d) for s in asked), default=ends[0])
        regimes = merged(map_facts.regimes(pass_, N, d, least, *ends))
        assert [area[:2] for area in areas] == [list(regime[:2]) for regime in regimes]
        assert [area[2:] for area in areas] == [pytest.approx(regime[2:]) for regime in regimes]
        expected = map_facts.best_schedule_ranges(asked, N, d, map_facts.memories(*ends))
        assert best_schedule_ranges == [[reign.schedule.name, reign.start, reign.stop] for reign in expected]


def merged(regimes):
    """Merge adjacent regimes of the same name and drop their terms, as the map of the library does."""
    areas = []
    for regime in regimes:
        if areas and areas[-1].name == regime.name:
            areas[-1] = areas[-1]._replace(words="", stop=regime.stop)
        else:
            areas.append(regime)
    return areas


# ---------------------------------------------------------------------- how it is used
def said(page):
    """Return the text of the status line."""
    return page.locator("[role=status]").text_content()


def handle_of(page):
    return page.get_by_role("slider", name=re.compile("fast memory M in words|corner of the tile"))


def map_says(N, d, M, pass_="forward", ticked=None):
    """Return the expected status line of the map for the selected schedules (default: all)."""
    ranked = map_facts.schedules_by_traffic(select_schedules(pass_, ticked), N, d, M)
    least, name = bounds.lower_bound(pass_, N, d, M)
    bound = f"the lower bound of {least:,} words ({bounds.BOUNDS[name].title})"
    if not ranked:
        title = bounds.BOUNDS[name].title
        return (
            f"M = {M:,}: none of the selected schedules fits. The lower bound is {least:,} words ({title})."
        )
    best = ranked[0].words
    names = [m.schedule.title for m in ranked if m.words == best and not m.schedule.given_weights]
    listed = f"{', '.join(names[:-1])}, and {names[-1]}" if len(names) > 2 else " and ".join(names)
    moved = f"{listed} {'have' if names[1:] else 'has'} the least traffic, {best:,} words"
    return f"M = {M:,}: {moved}, {times(best / least)} {bound}."


def tuner_says(*setting):
    """Return the expected status line of the tuner for (N, d, M, Br, Bc, schedule)."""
    s = tuner_facts.TileTunerState(*setting)
    ledger, (least, title) = tuner_facts.tile_ledger(s), tuner_facts.bound_of(s)
    spare = s.M - ledger.peak
    fits = f"fits, {spare:,} words free" if spare >= 0 else f"does not fit, {-spare:,} words over M"
    ratio = f"{times(ledger.total / least)} the lower bound of {least:,} words ({title})"
    compared = ratio if spare >= 0 else f"but this tile needs M = {ledger.peak:,}"
    return (
        f"Br = {s.Br:,}, Bc = {s.Bc:,}: traffic {ledger.total:,} words, {compared}. "
        f"Footprint {ledger.peak:,} of M = {s.M:,} words: {fits}."
    )


def test_the_map_is_worked_by_keyboard_alone(opened):
    page = opened("map.html")
    assert said(page) == map_says(4096, 64, 16384)
    page.locator("article p").first.click()  # above the explorer
    page.keyboard.press("Tab")  # the pass
    page.keyboard.press("ArrowRight")
    assert said(page) == map_says(4096, 64, 16384, "backward")
    for name, key, setting in (
        ("N (sequence length)", "ArrowRight", (6144, 64, 16384)),
        ("d (head dimension)", "ArrowLeft", (6144, 48, 16384)),
        ("M (words of fast memory)", "ArrowRight", (6144, 48, 18432)),
    ):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.parentElement.firstChild.textContent") == name
        page.keyboard.press(key)
        assert said(page) == map_says(*setting, "backward")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-valuetext')") == "18,432 words"
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowDown")
    assert said(page) == map_says(6144, 48, 32768, "backward")
    page.wait_for_function("location.hash === '#N=6144&d=48&M=32768&pass=backward'", timeout=WAIT)
    page.keyboard.press("Home")
    assert said(page) == map_says(6144, 48, 4, "backward")


def test_a_tick_takes_a_schedule_off_the_map_and_brings_a_bound(opened):
    page = opened("map.html#N=4096&d=64&M=16384&schedules=flash2,flash_optimal,resident_keys")
    lines = page.locator("[data-line]")
    names = ["flash2", "flash_optimal", "resident_keys", "compulsory", "A", "B'"]
    assert lines.evaluate_all("all => all.map(line => line.dataset.line)") == names
    page.get_by_role("checkbox", name="F3c resident_keys").press("Space")
    assert said(page) == map_says(4096, 64, 16384, ticked=["flash2", "flash_optimal"])
    assert "F3 flash_optimal and F2 flash2 have the least traffic, " in said(page)
    page.get_by_role("checkbox", name="Theorem A, whole").press("Space")
    assert lines.evaluate_all("all => all.map(line => line.dataset.line)") == [
        "flash2", "flash_optimal", "compulsory", "A", "B'", "A_rows",
    ]  # fmt: skip
    row = page.get_by_role("row", name="Theorem A, whole").get_by_role("cell")
    assert row.all_text_contents()[0] == f"{bounds.theorem_A_rows(4096, 64, 16388):,}"
    row = page.get_by_role("row", name="F2 flash2").get_by_role("cell").all_text_contents()
    cost = schedules.flash2.count(4096, 64, 16384)
    ratio = cost.total / bounds.lower_bound("forward", 4096, 64, 16384)[0]
    assert row == [f"{cost.total:,}", f"{ratio:.2f}", "Br\xa0=\xa0124, Bc\xa0=\xa01"]
    for name in ("F2 flash2", "F3 flash_optimal"):
        page.get_by_role("checkbox", name=name, exact=True).press("Space")
    assert said(page) == map_says(4096, 64, 16384, ticked=[])


def test_the_tuner_is_worked_by_keyboard_alone(opened):
    page = opened("tiles.html#schedule=flash_optimal&N=1000")
    assert said(page) == tuner_says(1000, 64, 16384, 32, 32, "flash_optimal")
    handle = handle_of(page)
    handle.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Shift+ArrowDown", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    assert said(page) == tuner_says(1000, 64, 16384, 50, 17, "flash_optimal")
    assert handle.get_attribute("aria-valuetext") == "Br 50, Bc 17"
    best = tuner_facts.best_tiles("flash_optimal", 1000, 64, 16384)
    page.keyboard.press("Home")
    assert said(page) == tuner_says(1000, 64, 16384, 1, 1, "flash_optimal")
    page.keyboard.press("End")
    assert said(page) == tuner_says(1000, 64, 16384, *best, "flash_optimal")
    page.get_by_role("slider", name="Br (rows per query block)").press("End")
    assert "does not fit" in said(page)
    page.get_by_role("button", name="Best tile for M").press("Enter")
    assert said(page) == tuner_says(1000, 64, 16384, *best, "flash_optimal")
    page.get_by_role("radio", name="flash_optimal").press("ArrowLeft")
    assert said(page) == tuner_says(1000, 64, 16384, *best, "flash1")
    page.get_by_role("slider", name="M (words of fast memory)").press("Home")
    page.get_by_role("button", name="Best tile for M").press("Enter")
    least = schedules.flash1.smallest_M(1000, 64)
    assert said(page).startswith(f"No tile of F1 flash1 fits in M = 4. The minimum is M = {least:,}. ")


def dragged(page, *ways, step=20):
    """Drag the handle by (x, y) pixels, in steps of about `step` pixels."""
    handle_of(page).scroll_into_view_if_needed()
    box = handle_of(page).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for to_x, to_y in ways:
        page.mouse.move(x + to_x, y + to_y, steps=max(abs(to_x), abs(to_y)) // step)
    page.mouse.up()


# Returns True if the address has all numbers of the handle. A page writes the address 250 ms after a change;
# under load it may do so several times while the mouse moves.
WRITTEN = """numbers => {
    const written = [...new URLSearchParams(location.hash.slice(1)).values()];
    return numbers.every(one => written.includes(one));
}"""


def shown_setting(page):
    """Return the setting in the address, after the last change was written."""
    shown = handle_of(page).get_attribute("aria-valuetext").replace(",", "")
    page.wait_for_function(WRITTEN, arg=re.findall(r"\d+", shown), timeout=WAIT)
    return dict(pair.split("=") for pair in page.evaluate("location.hash.slice(1)").split("&"))


def test_m_is_dragged_along_the_map(opened):
    page = opened("map.html")
    dragged(page, (-90, 10))
    M = int(shown_setting(page)["M"])
    assert 1000 < M < 9000
    assert said(page) == map_says(4096, 64, M)
    box = handle_of(page).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2 + 150, box["y"] + 30)  # a click leads there, too
    assert int(shown_setting(page)["M"]) > 8 * M


def test_the_corner_of_the_tile_is_dragged_past_what_fits(opened):
    page = opened("tiles.html")
    assert page.locator("rect.tile.fits").count() == 1
    dragged(page, (20, 40))
    setting = shown_setting(page)
    Br, Bc = int(setting["Br"]), int(setting["Bc"])
    assert 48 < Br < 80 and 40 < Bc < 60
    assert said(page) == tuner_says(1024, 64, 16384, Br, Bc, "flash2")
    dragged(page, (150, 150))
    assert page.locator("rect.tile.over").count() == 1 and "does not fit" in said(page)


def test_nonsense_in_the_address_is_put_right_and_said(opened):
    page = opened("map.html#N=abc&d=1e9&M=-7&pass=sideways&schedules=flash2,<b>&bounds=A")
    remarks = said(page)
    for part in (
        "N must be an integer from 1 to 65,536, got abc; 4,096 is used.",
        "d must be an integer from 1 to 256, got 1e9; 64 is used.",
        "M must be an integer from 4 to 134,217,728, got -7; 4 is used.",
        "Unknown pass sideways; forward is used.",
        "Unknown schedule <b>.",
    ):
        assert part in remarks
    assert page.locator("[data-line]").count() == 2  # flash2, A
    page.evaluate("location.hash = 'N=999999999&d=64&M=4096'")  # a link within the page
    page.get_by_text("N must be an integer from 1 to 65,536, got 999999999; 65,536 is used.").wait_for()
    page.evaluate("location.hash = 'a-heading'")  # an anchor is not a setting
    handle_of(page).press("ArrowRight")
    assert said(page) == map_says(65536, 64, 4608)

    page = opened("tiles.html#N=8&Br=9&Bc=&M=9e9&schedule=small_cache")
    for part in (
        "M must be an integer from 4 to 4,194,304, got 9e9; 16,384 is used.",
        "Unknown schedule small_cache; flash2 is used.",
        "Br must be an integer from 1 to 8, got 9; 8 is used.",
        "Bc must be an integer from 1 to 8, got ; 8 is used.",
    ):
        assert part in said(page)
    assert said(page).endswith(tuner_says(8, 64, 16384, 8, 8, "flash2"))


EXTREMES = {
    "map": (
        "N=1&d=1&M=4",
        "N=65536&d=256&M=134217728&pass=backward",
        "N=1&d=256&M=134217728&schedules=&bounds=",
        "N=7&d=256&M=5&pass=backward&bounds=C,E'",
    ),
    "tiles": (
        "N=1&d=1&M=4&Br=1&Bc=1",
        "N=65536&d=256&M=4194304&Br=65536&Bc=65536&schedule=naive",
        "N=65536&d=1&M=4",
    ),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_drawn_without_a_complaint(opened, name):
    page = opened(f"{name}.html", width=390)
    for setting in EXTREMES[name]:
        before = said(page)
        page.evaluate("setting => { location.hash = setting }", setting)
        page.wait_for_function(
            "old => document.querySelector('[role=status]').textContent !== old", arg=before
        )
        drawn = page.locator("svg[role=img]").inner_html()
        assert not re.search("NaN|Infinity|undefined|null", drawn)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


# ---------------------------------------------------------------------- who does not see it, or sees it small
TICKS = len(schedules.of_pass("forward")) + len(map_facts.bounds_of("forward"))


@pytest.mark.parametrize("name, sliders, ticks", [("map", 4, TICKS), ("tiles", 6, 0)])
def test_every_control_and_picture_has_a_name_and_numbers_are_spoken(opened, name, sliders, ticks):
    page = opened(f"{name}.html")
    told = spoken(page, ".explorer")
    assert [one for one in told if not one.name or "_ " in one.name] == []
    roles = Counter(one.role for one in told)
    assert (roles["slider"], roles["checkbox"], roles["image"] + roles["img"]) == (sliders, ticks, 1)
    values = [one.value for one in told if one.role == "slider"]
    assert "16,384" in values and all(re.search(r"\d", value) for value in values)
    picture = page.locator(".explorer").get_by_role("img")
    assert re.search(r"N = \d,\d{3}, d = 64", picture.locator("title").text_content())
    assert said(page) in picture.locator("desc").text_content()
    assert page.get_by_role("table").count() == 1


# Returns colours as pixels: backgrounds (the page first), lines and texts.
COLOURS = (
    "scheme => {"
    + PIXEL
    + """
    document.body.dataset.theme = scheme;
    const style = (element, part) => getComputedStyle(element)[part];
    const section = document.querySelector('.explorer');
    const probe = section.appendChild(document.createElement('span'));
    const colour = name => {
        probe.style.color = `var(--${name})`;
        return style(probe, 'color');
    };
    const grounds = ['paper', 'nothing', 'blocked', 'stored', 'rows', 'least'].map(colour);
    probe.remove();
    const all = what => [...section.querySelectorAll(what)];
    const lines = all('[data-line] polyline, .rim, .at, .gap, .tile, .scores, .axis');
    const texts = all('.picture text').map(each => style(each, 'fill'));
    texts.push(...all('p, td, th, label, legend, button').map(each => style(each, 'color')));
    return [grounds, lines.map(each => style(each, 'stroke')), texts]
        .map(each => each.map(one => pixel([[one, 1]])));
}"""
)


def worst(colours, grounds):
    """Return the lowest contrast between a colour and a background."""
    return min(ratio(one, other) for one in colours for other in grounds)


@pytest.mark.parametrize("place", ["map.html#pass=backward", "tiles.html"])
def test_lines_and_texts_stand_out_in_light_and_dark(opened, place):
    page = opened(place)
    for scheme in ("light", "dark"):
        grounds, lines, texts = page.evaluate(COLOURS, scheme)
        assert (luminance(grounds[0]) > 0.9) == (scheme == "light")
        assert len(lines) >= 3 and len(texts) >= 20
        line, text = worst(lines, grounds), worst(texts, grounds)
        assert line >= 3 and text >= 4.5, (scheme, line, text)


def test_a_dark_system_is_followed_where_the_theme_does_not_say(opened):
    page = opened("map.html", color_scheme="dark")
    papers = {scheme: page.evaluate(COLOURS, scheme)[0][0] for scheme in ("auto", "light")}
    assert luminance(papers["auto"]) < 0.1 < 0.9 < luminance(papers["light"])


# Returns labels below an axis that are within two pixels of the previous one.
TOO_NEAR = """all => {
    const boxes = all.map(each => each.getBoundingClientRect());
    return all.filter((_, k) => k && boxes[k].left < boxes[k - 1].right + 2).map(each => each.textContent);
}"""


WIDE = (  # addresses under which numbers and tiles are long
    "N=16384&pass=backward&schedule=naive&Bc=3000",
    "N=65536&d=256&M=4194304",
    "N=65536&d=1&M=4194304&pass=gradient",
    "N=65536&d=64&M=1048576&schedule=naive&Br=8192&Bc=8192",
    "N=65536&d=64&M=4194304",
)


@pytest.mark.parametrize("width", [360, 390])
@pytest.mark.parametrize("name", ["map", "tiles"])
def test_a_telephone_shows_all_of_it_without_scrolling_sideways(opened, name, width):
    page = opened(f"{name}.html", width=width, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = """all => all.filter(each => {
        const {left, right} = each.getBoundingClientRect();
        const page = each.closest('.explorer').getBoundingClientRect();
        return each.checkVisibility() && (left < page.left || right > page.right);
    }).map(each => each.textContent)"""
    for other in WIDE:
        assert page.locator(".explorer :is(.picture text, td, th, label)").evaluate_all(outside) == []
        before = said(page)
        page.evaluate("other => { location.hash = other }", other)
        page.wait_for_function(
            "old => document.querySelector('[role=status]').textContent !== old", arg=before
        )
    assert page.locator(".explorer :is(.picture text, td, th, label)").evaluate_all(outside) == []
    if name == "map":
        assert page.locator("svg .axis + text[text-anchor=middle]").evaluate_all(TOO_NEAR) == []
    targets = page.locator(".explorer input:is([type=checkbox], [type=radio])").locator(
        "xpath=ancestor::label"
    )
    heights = targets.evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
    assert len(heights) >= 3 and min(heights) >= 24  # a finger hits no smaller ones
    before = said(page)
    page.locator(".picture").scroll_into_view_if_needed()
    box = page.locator(".picture").bounding_box()
    page.touchscreen.tap(box["x"] + 0.6 * box["width"], box["y"] + 200)
    assert said(page) != before  # a tap leads there


# ---------------------------------------------------------------------- how fast it is
@pytest.mark.parametrize("place", ["map.html#pass=backward", "tiles.html#schedule=naive&N=16384"])
def test_a_picture_takes_little_of_a_core(opened, place):
    """CPU time of the page, averaged over keys and a drag, independent of the load of the machine."""
    page = opened(place)
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def taken():
        told = metrics.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in told if one["name"] == "TaskDuration")

    before = taken()
    for key in ("ArrowRight", "ArrowLeft") * 4:
        handle_of(page).press(key)
        page.get_by_role("slider", name="N (sequence length)").press(key)
    dragged(page, (60, 60), (-10, 0), step=2)
    assert (taken() - before) / (16 + 30 + 5) < 0.05  # seconds
