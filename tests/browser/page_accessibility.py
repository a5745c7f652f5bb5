"""Accessibility checks of a built page in Chromium: names, headings, colours, formulas, width."""

from itertools import pairwise

from page_audit import readings, unnamed

HEADINGS = "() => [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))"
FORMULAS = """async () => {
    const present = document.querySelectorAll('.math').length;
    if (present) await MathJax.startup.promise;
    const wrong = [...document.querySelectorAll('mjx-merror, [data-mjx-error]')];
    const textOf = part => {
        const copy = part.cloneNode(true);
        copy.querySelectorAll('code, pre, mjx-container').forEach(inner => inner.remove());
        return copy.textContent.trim();
    };
    const parts = document.querySelectorAll('article p, article li, article td, article summary');
    const texts = [...parts].map(textOf);
    return {asked: present, shown: document.querySelectorAll('mjx-container').length,
            wrong: wrong.map(error => error.textContent.slice(0, 80)),
            raw: texts.filter(text => /\\$|\\\\[a-zA-Z(\\[]/.test(text)).map(text => text.slice(0, 80))};
}"""
# A word may be broken after its hyphen.
BROKEN_WORDS = """() => [...document.querySelectorAll('article :is(h1, h2, h3)')].flatMap(heading => {
    const found = [], texts = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode())
        for (const word of node.data.matchAll(/[^\\s-]+/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map(one => Math.round(one.top)));
            if (lines.size > 1) found.push(word[0]);
        }
    return found;
})"""
CUT_COMMANDS = """() => [...document.querySelectorAll(':is(.highlight-bash, .highlight-powershell) pre')]
    .filter(command => command.scrollWidth > command.clientWidth)
    .map(command => command.textContent.slice(0, 80))"""


def without_a_name(page):
    """Return role and tag of each element without an accessible name."""
    return [f"{one.role} {one.tag}" for one in unnamed(page)]


def pale_text(page, least=4.5):
    """Return texts with too little contrast to their background, once for each pair of colours."""
    pale = [one for one in readings(page) if one.ratio < least]
    return [f"{one.ratio:.2f} {one.colour} on {one.ground}: {one.text}" for one in pale]


def headings(page):
    """Return the levels of the headings of the page, in order."""
    return page.evaluate(HEADINGS)


def jumps(levels):
    """Return pairs of consecutive headings that skip a level."""
    return [(a, b) for a, b in pairwise(levels) if b > a + 1]


def formulas(page):
    """Return the numbers of formulas in source and output, formulas with errors, and texts with raw TeX."""
    page.wait_for_function("!document.querySelector('.math') || window.MathJax?.startup?.promise")
    return page.evaluate(FORMULAS)


def too_wide(page):
    """Return the pixels by which the page exceeds the window width."""
    return page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")


def broken_words(page):
    """Return words of headings that are broken across lines."""
    return page.evaluate(BROKEN_WORDS)


def cut_commands(page):
    """Return commands that are partly cut off."""
    return page.evaluate(CUT_COMMANDS)


def what_is_wrong(page):
    """Return a line for each fault of the current page, in light and dark mode, on desktop and phone."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    told = formulas(page)
    levels = headings(page)
    wrong = [f"in error: {formula}" for formula in told["wrong"]]
    wrong += [f"raw TeX: {text}" for text in told["raw"]]
    wrong += [f"{told['shown']} of {told['asked']} formulas shown"] * (told["shown"] != told["asked"])
    wrong += [f"headings jump: {jump}" for jump in jumps(levels)]
    wrong += [f"{levels.count(1)} titles"] * (levels.count(1) != 1)
    wrong += [f"light, too pale: {text}" for text in pale_text(page)]
    wrong += [f"without a name: {node}" for node in without_a_name(page)]
    page.emulate_media(color_scheme="dark")
    wrong += [f"dark, too pale: {text}" for text in pale_text(page)]
    wrong += [f"cut off: {command}" for command in cut_commands(page)]
    page.set_viewport_size({"width": 360, "height": 800})
    wrong += [f"on a phone, cut off: {command}" for command in cut_commands(page)]
    wrong += [f"on a phone, broken in a heading: {word}" for word in broken_words(page)]
    wrong += [f"{too_wide(page)} pixels too wide for a phone"] * (too_wide(page) > 0)
    return wrong + [f"on a phone, without a name: {node}" for node in without_a_name(page)]
