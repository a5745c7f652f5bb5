"""The built site on a web server, and what goes wrong when Chromium opens its pages.

with served(folder) as address: ...
tab = Tab(page, address)
tab.faults("explore/tiles.html")    faults of this page
tab.dead_links(folder)              links of the pages opened so far that lead nowhere
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# The source of the page is examined too. A script that empties the wrong one of two elements with the same id
# may remove the other one with it, and a title or a stylesheet.
SHOWN = """async () => {
    const twice = root => {
        const ids = [...root.querySelectorAll('[id]')].map(one => one.id);
        return ids.filter((id, at) => ids.indexOf(id) < at);
    };
    const sheets = root => [...root.querySelectorAll('link[rel~=stylesheet]')];
    const source = new DOMParser().parseFromString(await (await fetch(location.href)).text(), 'text/html');
    const loaded = sheets(document).filter(one => one.sheet).map(one => one.getAttribute('href'));
    const named = [...document.querySelectorAll('[id], a[name]')].flatMap(one => [one.id, one.name]);
    const inside = [...document.links].filter(one => one.origin === location.origin);
    return {
        titles: document.querySelectorAll('h1').length,
        twice: [...new Set([...twice(source), ...twice(document)])],
        sheets: loaded.length,
        missing: sheets(source).map(one => one.getAttribute('href')).filter(one => !loaded.includes(one)),
        explorers: [...document.querySelectorAll('.explorer')].map(one => one.getAttribute('aria-label')),
        places: named.filter(one => typeof one === 'string' && one),
        links: inside.map(one => [decodeURIComponent(one.pathname), decodeURIComponent(one.hash.slice(1))]),
    };
}"""
# Presses a key on the handle of an explorer and returns whether its text and its figure have changed.
ANSWERS = """name => {
    const root = [...document.querySelectorAll('.explorer')].find(one => one.ariaLabel === name);
    const [handle, text, figure] = ['.handle', '[role=status]', 'svg'].map(one => root.querySelector(one));
    if (!handle || !text || !figure) return false;
    const before = [text.textContent, figure.innerHTML];
    handle.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true, cancelable: true}));
    return text.textContent !== before[0] && figure.innerHTML !== before[1];
}"""


class Files(SimpleHTTPRequestHandler):
    """Request handler for the files of a folder; like most sites, it has no /favicon.ico."""

    def do_GET(self) -> None:
        """Answer a browser's own request for an icon with "no content", which is not an error."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder and yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Tab:
    """A tab of the browser that opens pages one after the other and collects what goes wrong."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.explorers, self._said, self._places, self._links = [], [], {}, {}
        page.on("pageerror", lambda error: self._said.append(f"script error: {error}"))
        page.on("console", self._console)
        page.on("response", self._response)

    def _console(self, message):
        # The message on a response with an error code does not name the file; _response does.
        if message.type == "error" and "the server responded with a status" not in message.text:
            self._said.append(f"console: {message.text}")

    def _response(self, response):
        if response.status >= 400:
            self._said.append(f"{response.status}: {response.url.removeprefix(self.address)}")

    def faults(self, path):
        """Open a page and return a line for each fault of it."""
        self._said.clear()
        self.page.goto(f"{self.address}/{path}")
        shown = self.page.evaluate(SHOWN)
        self._places[f"/{path}"], self._links[f"/{path}"] = {"", "top", *shown["places"]}, shown["links"]
        self.explorers += shown["explorers"]
        wrong = [f"{shown['titles']} titles"] * (shown["titles"] != 1)
        wrong += [f"two elements with the id {one}" for one in shown["twice"]]
        wrong += [f"stylesheet not loaded: {one}" for one in shown["missing"]]
        wrong += ["no stylesheet"] * (not shown["sheets"])
        for name in shown["explorers"]:
            if not self.page.evaluate(ANSWERS, name):
                wrong.append(f"the explorer {name} does not answer to a key")
        return wrong + self._said

    def dead_links(self, folder):
        """Return a line for each link to a missing file, or to a missing place of an opened page."""
        found = []
        for path, links in self._links.items():
            for target, place in map(tuple, links):
                target += "index.html" if target.endswith("/") else ""
                there = (
                    place in self._places[target]
                    if target in self._places
                    else ((folder / target.lstrip("/")).is_file())
                )
                if not there:
                    found.append(f"{path.lstrip('/')}: no such place: {target}{f'#{place}' if place else ''}")
        return sorted(set(found))
