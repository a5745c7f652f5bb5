"""An explorer in a page as its user has it: controls by their names, a picture that can be dragged, words."""

import time
from itertools import cycle, islice

from playwright import sync_api
from playwright_thread import InPlaywrightThread

expect = InPlaywrightThread(sync_api.expect)
WAIT = 120_000  # milliseconds

# From a key or the pointer to the first frame after the new picture is in the page.
STOPWATCH = """root => {
    const watched = {latencies: [], frames: []};
    let started = null;
    const start = () => { started ??= performance.now(); };
    for (const kind of ['keydown', 'pointerdown', 'pointermove']) root.addEventListener(kind, start, true);
    new MutationObserver(() => {
        const began = started;
        started = null;
        requestAnimationFrame(() => setTimeout(() => {
            watched.frames.push(performance.now());
            if (began !== null) watched.latencies.push(performance.now() - began);
        }));
    }).observe(root.querySelector('.picture'), {
        subtree: true, childList: true, attributes: true, characterData: true,
    });
    root.watched = watched;
}"""

# What the stopwatch has seen: at once, or as soon as it is more than `seen`. A key may change nothing, at the
# end of a slider.
LATENCIES = """(root, [seen, patience]) => new Promise(told => {
    const end = performance.now() + patience;
    const look = () => {
        const took = root.watched.latencies;
        return took.length > seen || performance.now() > end ? told(took) : setTimeout(look, 5);
    };
    look();
})"""


class ExplorerPage:
    """One explorer of a page, found by its name in the accessibility tree."""

    def __init__(self, page, name):
        self.page, self.name = page, name
        self.root = page.get_by_role("group", name=name, exact=True)
        self.picture = self.root.get_by_role("img")
        self.words = self.root.locator(".words")
        self.picture.wait_for(timeout=WAIT)

    def slider(self, name):
        """A slider."""
        return self.root.get_by_role("slider", name=name, exact=True)

    def button(self, name):
        """A button."""
        return self.root.get_by_role("button", name=name, exact=True)

    def spoken(self, name):
        """What a slider's value is called."""
        return self.slider(name).get_attribute("aria-valuetext")

    def title(self):
        """The title of the picture."""
        return self.picture.locator("title").text_content()

    def description(self):
        """The description of the picture."""
        return self.picture.locator("desc").text_content()

    def after(self, act):
        """The description of the picture that follows `act`, once pictures have come to rest."""
        before = self.description()
        act()
        expect(self.picture.locator("desc")).not_to_have_text(before, timeout=WAIT)
        self.rest()
        return self.description()

    def rest(self):
        """Wait until nothing is drawn any longer."""
        self.page.wait_for_timeout(150)

    def press(self, name, key):
        """A key on a slider; the description that follows."""
        return self.after(lambda: self.slider(name).press(key))

    def choose(self, name):
        """One of several names that are all in view, by the space bar; the description that follows."""
        return self.after(lambda: self.root.get_by_role("radio", name=name, exact=True).press("Space"))

    def drag(self, by, grab=0):
        """The mouse takes hold of the picture and goes `by` pixels to the right and down."""
        box = self._grab(grab)
        mouse = self.page.mouse
        mouse.move(*box)
        mouse.down()
        said = self.after(lambda: mouse.move(box[0] + by[0], box[1] + by[1], steps=5))
        mouse.up()
        return said

    def _grab(self, number):
        grab = self.root.locator(".grab").nth(number)
        grab.scroll_into_view_if_needed()
        box = grab.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    # ------------------------------------------------------------------ how long it takes
    def time_keys(self, slider, count):
        """Milliseconds from a key on a slider to pixels, for so many keys: four up, or to its end, and back.

        Each is pressed once the last has come to rest; a hand that does not rest is what `time_drag` is.
        """
        self.root.evaluate(STOPWATCH)
        steps = min(4, self.slider(slider).evaluate("one => one.max - one.value"))
        keys = cycle(["ArrowRight"] * steps + ["ArrowLeft"] * steps)
        took = []
        for key in islice(keys, count):
            self.rest()
            self.slider(slider).press(key)
            took = self.root.evaluate(LATENCIES, [len(took), WAIT])
        return took

    def time_drag(self, by, steps, seconds=1.0):
        """Frames a second, and milliseconds from pointer to pixels, as the mouse goes to and fro.

        It goes `by` pixels to the right and down, in so many steps, each long enough to change the picture.
        """
        x, y = self._grab(0)
        mouse = self.page.mouse
        mouse.move(x, y)
        mouse.down()
        self.root.evaluate(STOPWATCH)
        end, moves = time.monotonic() + seconds, 0
        while time.monotonic() < end or self.root.evaluate("root => root.watched.frames.length") < 3:
            moves += 1
            share = abs((moves + steps) % (2 * steps) - steps) / steps
            mouse.move(x + by[0] * share, y + by[1] * share)
        self.rest()
        mouse.up()
        watched = self.root.evaluate("root => root.watched")
        frames = watched["frames"]
        return 1000 * (len(frames) - 1) / (frames[-1] - frames[0]), watched["latencies"]
