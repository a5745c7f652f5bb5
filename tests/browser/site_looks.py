"""What a person meets on a built page, asked of Chromium: names, headings, colours, formulas, width."""

from itertools import pairwise

# The ratio of WCAG between a text and what lies behind it, for every line of text that is seen.
PALE_TEXT = """least => {
    const parts = colour => {
        const numbers = colour.match(/[\\d.]+/g).map(Number);
        return {rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1};
    };
    const over = (top, below) => top.rgb.map((value, at) => value * top.alpha + below[at] * (1 - top.alpha));
    const behind = element => {
        if (!element) return [255, 255, 255];
        const own = parts(getComputedStyle(element).backgroundColor);
        return own.alpha === 1 ? own.rgb : over(own, behind(element.parentElement));
    };
    const light = rgb => {
        const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = rgb.map(v => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = new Map(), silent = ['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE'];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = texts.nextNode());) {
        const element = node.parentElement;
        if (!node.data.trim() || silent.includes(element.tagName)) continue;
        const style = getComputedStyle(element), box = element.getBoundingClientRect();
        const drawn = style.visibility !== 'hidden' && element.checkVisibility({opacityProperty: true});
        if (!drawn || box.width < 2) continue;
        const ground = behind(element);
        const [a, b] = [light(over(parts(style.color), ground)), light(ground)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const what = `${element.tagName}.${element.className} ${style.color} on ${ground.map(Math.round)}`;
        const words = node.data.trim().slice(0, 40);
        if (ratio < least && !found.has(what)) found.set(what, `${ratio.toFixed(2)} ${what}: ${words}`);
    }
    return [...found.values()];
}"""
HEADINGS = "() => [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))"
FORMULAS = """async () => {
    const asked = document.querySelectorAll('.math').length;
    if (asked) await MathJax.startup.promise;
    const wrong = [...document.querySelectorAll('mjx-merror, [data-mjx-error]')];
    const told = part => {
        const copy = part.cloneNode(true);
        copy.querySelectorAll('code, pre, mjx-container').forEach(inner => inner.remove());
        return copy.textContent.trim();
    };
    const parts = document.querySelectorAll('article p, article li, article td, article summary');
    const texts = [...parts].map(told);
    return {asked, shown: document.querySelectorAll('mjx-container').length,
            wrong: wrong.map(error => error.textContent.slice(0, 80)),
            raw: texts.filter(text => /\\$|\\\\[a-zA-Z(\\[]/.test(text)).map(text => text.slice(0, 80))};
}"""
MUST_SPEAK = {
    "button", "checkbox", "combobox", "image", "img", "link", "radio", "searchbox", "slider", "spinbutton",
    "switch", "textbox",
}  # fmt: skip


def without_a_name(page):
    """Roles and places of what assistive technology finds on the page and cannot name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    assert len(nodes) > 20  # the tree is there
    return [
        f"{node['role']['value']} {node.get('properties', [])[:2]}"
        for node in nodes
        if not node["ignored"]
        and node["role"]["value"].lower() in MUST_SPEAK
        and not node.get("name", {}).get("value", "").strip()
    ]


def pale_text(page, least=4.5):
    """Texts whose colour is too near to what lies behind, once for each pair of colours."""
    return page.evaluate(PALE_TEXT, least)


def headings(page):
    """The levels of the page's headings, from the top down."""
    return page.evaluate(HEADINGS)


def jumps(levels):
    """Pairs of headings that go down by more than one level."""
    return [(a, b) for a, b in pairwise(levels) if b > a + 1]


def formulas(page):
    """How many formulas the page has and shows, those in error, and texts with TeX as it was written."""
    page.wait_for_function("!document.querySelector('.math') || window.MathJax?.startup?.promise")
    return page.evaluate(FORMULAS)


def too_wide(page):
    """Pixels by which the page must be scrolled sideways."""
    return page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")


def what_is_wrong(page):
    """A line for each thing that is not right on the page in view, light and dark, wide and on a phone."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    told = formulas(page)
    levels = headings(page)
    wrong = [f"in error: {formula}" for formula in told["wrong"]]
    wrong += [f"TeX as it was written: {text}" for text in told["raw"]]
    wrong += [f"{told['shown']} of {told['asked']} formulas shown"] * (told["shown"] != told["asked"])
    wrong += [f"headings jump: {jump}" for jump in jumps(levels)]
    wrong += [f"{levels.count(1)} titles"] * (levels.count(1) != 1)
    wrong += [f"light, too pale: {text}" for text in pale_text(page)]
    wrong += [f"without a name: {node}" for node in without_a_name(page)]
    page.emulate_media(color_scheme="dark")
    wrong += [f"dark, too pale: {text}" for text in pale_text(page)]
    page.set_viewport_size({"width": 390, "height": 800})
    wrong += [f"{too_wide(page)} pixels too wide for a phone"] * (too_wide(page) > 0)
    return wrong + [f"on a phone, without a name: {node}" for node in without_a_name(page)]
