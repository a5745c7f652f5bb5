"""Layout checks of a figure: all elements are inside, and nothing overlaps a text."""

from itertools import combinations

from iocourse.course.explore.draw.picture import Rect, Text, text_width


def texts(picture):
    """Return all texts, in the order of drawing."""
    return [element.text for element in picture.elements if isinstance(element, Text)]


def check_layout(picture):
    """Assert that all texts and rectangles are inside the figure, and that nothing overlaps a text."""
    boxes = [(box_of(text), text.text) for text in picture.elements if isinstance(text, Text)]
    for (left, top, right, bottom), text in boxes:
        inside = left >= 0 and top >= 0 and right <= picture.width and bottom <= picture.height
        assert inside, f"{text!r} leaves the picture"
    for (one, text), (other, other_text) in combinations(boxes, 2):
        assert not _overlap(one, other), f"{text!r} lies on {other_text!r}"
    for at, rect in enumerate(picture.elements):
        if isinstance(rect, Rect):
            if rect.fill:
                box = rect.x, rect.y, rect.x + rect.width, rect.y + rect.height
                for text in picture.elements[:at]:
                    covered = isinstance(text, Text) and _overlap(box, box_of(text))
                    assert not covered, f"a rectangle covers {text.text!r}"
            assert rect.x >= -2 and rect.x + rect.width <= picture.width + 2
            assert rect.y >= -2 and rect.y + rect.height <= picture.height + 2


def box_of(text):
    width = 0.9 * text_width(text.text, text.size) * (1.08 if text.bold else 1)
    start = {"start": 0.0, "middle": -width / 2, "end": -width}[text.anchor]
    if text.turned:
        return text.x - 0.72 * text.size, text.y - start - width, text.x, text.y - start
    return text.x + start, text.y - 0.72 * text.size, text.x + start + width, text.y


def _overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
