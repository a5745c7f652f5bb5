"""Driver of an explorer in a page: controls by name, draggable figure, text, and latencies."""

import time
from itertools import cycle, islice

from playwright import sync_api
from playwright_thread import InPlaywrightThread

expect = InPlaywrightThread(sync_api.expect)
WAIT = 120_000  # milliseconds

# Records the time from a key or pointer event to the first frame after the new figure is in the page.
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

# Returns the recorded latencies when there are more than `seen`, or after `patience` milliseconds, because a
# key at the end of a slider changes nothing.
LATENCIES = """(root, [seen, patience]) => new Promise(done => {
    const end = performance.now() + patience;
    const look = () => {
        const took = root.watched.latencies;
        return took.length > seen || performance.now() > end ? done(took) : setTimeout(look, 5);
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
        """Return the slider with this name."""
        return self.root.get_by_role("slider", name=name, exact=True)

    def button(self, name):
        """Return the button with this name."""
        return self.root.get_by_role("button", name=name, exact=True)

    def spoken(self, name):
        """Return the text that a screen reader reads for the value of a slider."""
        return self.slider(name).get_attribute("aria-valuetext")

    def title(self):
        """Return the title of the figure."""
        return self.picture.locator("title").text_content()

    def description(self):
        """Return the description of the figure."""
        return self.picture.locator("desc").text_content()

    def after(self, act):
        """Call `act` and return the new description of the figure when drawing has ended."""
        before = self.description()
        act()
        expect(self.picture.locator("desc")).not_to_have_text(before, timeout=WAIT)
        self.rest()
        return self.description()

    def rest(self):
        """Wait until drawing has ended."""
        self.page.wait_for_timeout(150)

    def press(self, name, key):
        """Press a key on a slider and return the new description."""
        return self.after(lambda: self.slider(name).press(key))

    def choose(self, name):
        """Select a radio button with the space bar and return the new description."""
        return self.after(lambda: self.root.get_by_role("radio", name=name, exact=True).press("Space"))

    def drag(self, by, grab=0):
        """Drag a region of the figure by `by` pixels to the right and down; return the new description."""
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
        """Return the milliseconds from key to pixels for `count` keys on a slider: up to four up, and back.

        Each key is pressed after drawing has ended; `time_drag` measures continuous input.
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
        """Return frames per second and milliseconds from pointer to pixels while the mouse moves to and fro.

        It moves by `by` pixels to the right and down in `steps` steps, each long enough to change the figure.
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
