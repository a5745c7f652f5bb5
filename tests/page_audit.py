"""Accessibility checks of a page rendered by Chromium: names for screen readers, and contrast of its text.

    spoken(page, ".jp-OutputArea")   elements that a screen reader announces, with their names
    unnamed(page)                    those of them without a name
    readings(page)                   texts with their contrasts, one for each pair of colours
    contrast(page)                   the text with the least contrast

Each examines the first element that a CSS selector finds, or the complete page without one.
"""

from typing import NamedTuple

SPEAKS = {
    "button", "checkbox", "combobox", "comboboxgrouping", "comboboxmenubutton", "comboboxselect", "image",
    "img", "link", "listbox", "menuitem", "option", "popupbutton", "radio", "radiogroup", "searchbox",
    "slider", "spinbutton", "switch", "tab", "textbox", "textfield", "togglebutton",
}  # fmt: skip


class Spoken(NamedTuple):
    """One element of the accessibility tree: role, name and value (aria-valuetext if there is one)."""

    role: str
    name: str
    description: str
    value: str
    tag: str


class Reading(NamedTuple):
    """A piece of text, its contrast, and its colour and background as red, green and blue."""

    ratio: float
    text: str
    colour: tuple[int, int, int]
    ground: tuple[int, int, int]


def unnamed(page, within="body"):
    """Return the images, buttons, links and controls without a name for screen readers."""
    return _told(page, within, lambda node: not _name(node))


def spoken(page, within="body"):
    """Return the images, buttons, links and controls in order, as a screen reader announces them."""
    return _told(page, within, lambda node: True)


def _told(page, within, wanted):
    session = page.context.new_cdp_session(page)
    try:
        look = {"expression": f"document.querySelector({within!r})"}
        root = session.send("Runtime.evaluate", look)["result"]
        assert "objectId" in root, f"nothing on the page is {within!r}"
        nodes = session.send("Accessibility.queryAXTree", {"objectId": root["objectId"]})["nodes"]
        speak = [node for node in nodes if not node["ignored"] and _role(node) in SPEAKS]
        return [_spoken(session, node) for node in speak if wanted(node)]
    finally:
        session.detach()


def _role(node):
    return _value(node, "role").lower()


def _name(node):
    return _value(node, "name").strip()


def _value(node, key):
    return str(node.get(key, {}).get("value", ""))


def _spoken(session, node):
    element = session.send("DOM.describeNode", {"backendNodeId": node["backendDOMNodeId"]})["node"]
    pairs = element.get("attributes", [])
    attributes = dict(zip(pairs[::2], pairs[1::2], strict=True))
    # From the element: Chromium 156 leaves aria-valuetext out of the tree that its debugger shows.
    value = attributes.get("aria-valuetext") or _value(node, "value")
    shown = [f'{name}="{text[:40]}"' for name, text in attributes.items()]
    tag = f"<{' '.join([element['nodeName'].lower(), *shown])}>"
    return Spoken(_role(node), _name(node), _value(node, "description"), value, tag)


def contrast(page, within="body"):
    """Return the text with the least contrast to its background, or None if there is no text."""
    return min(readings(page, within), default=None, key=lambda one: one.ratio)


def readings(page, within="body"):
    """Return the first text of each pair of text colour and background colour.

    Text in figures and over background images is ignored, and so are disabled and hidden elements.
    """
    found = page.evaluate(TEXTS, within)
    return [Reading(ratio(one["colour"], one["ground"]), **one) for one in found]


def ratio(one, other):
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2); each is red, green and blue from 0 to 255."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    """Return the relative luminance, 0 to 1 (WCAG 2.2), of red, green and blue from 0 to 255."""
    red, green, blue = (_linear(channel / 255) for channel in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(share):
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


# `pixel`: what is seen of colours of any notation, each with its alpha, laid one over the other on white.
PIXEL = """
    const brush = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const pixel = paints => {
        brush.globalAlpha = 1;
        brush.fillStyle = '#fff';
        brush.fillRect(0, 0, 1, 1);
        for (const [colour, alpha] of paints) {
            brush.globalAlpha = alpha;
            brush.fillStyle = colour;
            brush.fillRect(0, 0, 1, 1);
        }
        return Array.from(brush.getImageData(0, 0, 1, 1).data.slice(0, 3));
    };
"""
# Grounds are laid over each other from the page upwards.
TEXTS = (
    "within => {"
    + PIXEL
    + """
    const root = document.querySelector(within);
    const known = new Map();
    const look = element => {
        if (known.has(element)) return known.get(element);
        const style = getComputedStyle(element);
        const above = element.parentElement ? look(element.parentElement)
            : {grounds: [], alpha: 1, skip: false};
        const alpha = above.alpha * style.opacity;
        const here = {
            alpha,
            colour: style.color,
            grounds: [...above.grounds, [style.backgroundColor, alpha]],
            skip: above.skip || style.backgroundImage !== 'none' || alpha < 0.01
                || element.matches('svg, :disabled, [aria-disabled=true], script, style, noscript, template'),
            hidden: style.visibility !== 'visible',
        };
        known.set(element, here);
        return here;
    };
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), range = document.createRange();
    const found = new Map();
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const text = node.data.trim();
        if (!text) continue;
        const seen = look(node.parentElement);
        if (seen.skip || seen.hidden) continue;
        range.selectNodeContents(node);
        const box = range.getBoundingClientRect();
        if (box.width < 2 || box.height < 2) continue;
        const colour = pixel([...seen.grounds, [seen.colour, seen.alpha]]), ground = pixel(seen.grounds);
        const pair = `${colour} on ${ground}`;
        if (!found.has(pair)) found.set(pair, {text: text.slice(0, 80), colour, ground});
    }
    return [...found.values()];
}"""
)
