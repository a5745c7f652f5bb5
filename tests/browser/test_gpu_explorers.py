"""The kernel tuner and the roofline explorer in JupyterLab and a real Chromium, moved with the keyboard."""

from statistics import median

from iocourse import explore
from iocourse.costs.each_kernel import kernel_words
from iocourse.costs.kernels import Problem

WAIT = 20_000  # milliseconds
TITLE = "() => document.querySelector('.widget-html-content svg title')?.textContent"


class Page:
    """An explorer as its user has it: handles of sliders, buttons, a picture, and words."""

    def __init__(self, page):
        self.page = page
        self.picture = page.locator(".widget-html-content svg[role=img]").first
        self.words = page.locator(".widget-html-content", has_not=page.locator("svg")).first

    def title(self):
        """The title of the picture: every size."""
        return self.page.evaluate(TITLE)

    def press(self, label, key):
        """A key on the handle of a slider; the title that follows."""
        handle = self.page.locator(".widget-hslider", has_text=label).first.locator(".noUi-handle")
        return self._after(lambda: handle.press(key))

    def choose(self, name):
        """Enter on a button; the title that follows."""
        return self._after(lambda: self.page.get_by_role("button", name=name, exact=True).press("Enter"))

    def drag(self, label, pixels):
        """The mouse takes a slider's handle to the right; the title that follows."""
        handle = self.page.locator(".widget-hslider", has_text=label).first.locator(".noUi-handle")
        handle.scroll_into_view_if_needed()
        box = handle.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def move():
            self.page.mouse.move(x, y)
            self.page.mouse.down()
            self.page.mouse.move(x + pixels, y, steps=4)
            self.page.mouse.up()

        return self._after(move)

    def _after(self, act):
        before = self.title()
        act()
        self.page.wait_for_function(f"old => ({TITLE})() !== old", arg=before, timeout=WAIT)
        self.page.wait_for_timeout(150)  # a drag passes several values
        return self.title()

    def says(self, text):
        """Wait until the words beside the picture hold `text`."""
        self.page.wait_for_function(
            """text => Array.from(document.querySelectorAll('.widget-html-content'))
                .some(part => !part.querySelector('svg') && part.textContent.includes(text))""",
            arg=text,
            timeout=WAIT,
        )

    def latency(self, stopwatch, capsys, label, what):
        """Time twenty key presses on a slider, to the pixels that follow."""
        self.page.evaluate(stopwatch)
        for key in ("ArrowRight", "ArrowLeft") * 10:
            self.press(label, key)
        self.page.wait_for_function("() => window.latencies.length >= 19", timeout=WAIT)
        took = sorted(self.page.evaluate("window.latencies"))
        with capsys.disabled():
            print(f"\n{what}: {took[0]:.0f} / {median(took):.0f} / {took[-1]:.0f} ms (min/median/max)")


def test_the_kernel_tuner_follows_keys_and_the_mouse(shown, title_stopwatch, capsys):
    page = Page(shown("kernel_tuner", "explore.kernel_tuner(80, 128, 2, BM=64, BN=64, warps=4)"))
    assert page.title() == explore.kernel_tuner_picture(80, 128, 2, "forward", 64, 64, warps=4).title

    assert "128 × 64, 4 warps" in page.press("BM (queries)", "ArrowRight")
    total = kernel_words("forward", Problem(4096, 4096, 128, high=0), BM=128, BN=64).total
    page.says(f"{total:,} words moved")
    assert "forward on T4" in page.choose("T4 (sm_75)")
    expected = explore.kernel_tuner_picture(75, 128, 2, "forward", 128, 64, warps=4)
    assert expected.alt in page.picture.inner_html().replace("&amp;", "&")

    assert page.choose("sliced_forward").startswith("sliced_forward on T4")
    assert "slices of" in page.title()
    before = page.title()
    assert page.press("BD (slice of d)", "ArrowRight") != before
    assert "32 bit" in page.choose("32 bit") and "no mask" in page.choose("no mask")
    page.drag("BM (queries)", -150)
    page.choose("shipped tile")
    page.says("The tile that the kernels ship with")
    page.latency(title_stopwatch, capsys, "BN (keys)", "kernel tuner, key press to pixels")


def test_the_roofline_explorer_follows_keys_and_the_mouse(shown, title_stopwatch, capsys):
    page = Page(shown("roofline", "explore.roofline_explorer(90, 4096, 128, 32, 8)"))
    assert page.title() == explore.roofline_explorer_picture(90, 4096, 128, 32, 8).title
    page.says("decode by memory")

    assert "N = 8,192" in page.press("N (rows)", "ArrowRight")
    assert "d = 96" in page.press("d (columns)", "ArrowLeft")
    assert "H_kv = 4" in page.press("H_kv (of keys)", "ArrowLeft")
    assert "density 0.5" in page.press("density", "ArrowRight")
    assert page.choose("no mask").endswith("no mask, density 0.5")
    assert page.choose("L4 (sm_89)").startswith("L4: N = 8,192, d = 96, H = 32, H_kv = 4")
    expected = explore.roofline_explorer_picture(89, 8192, 96, 32, 4, causal=False, density=0.5)
    assert expected.alt in page.picture.inner_html()

    dragged = page.drag("N (rows)", -200)
    rows = int(dragged.split("N = ")[1].split(", d")[0].replace(",", ""))
    assert rows < 8192
    expected = explore.roofline_explorer_picture(89, rows, 96, 32, 4, causal=False, density=0.5)
    assert expected.alt in page.picture.inner_html()
    page.latency(title_stopwatch, capsys, "N (rows)", "roofline explorer, key press to pixels")
