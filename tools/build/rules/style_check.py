"""Plain English: count the phrases that this project avoids, and refuse a file that has more than recorded.

Docstrings, comments and messages (strings of three words or more) of Python files and the text of lessons,
pages and TOML files are searched; code, formulas, links and generated pages are not. `style_counts.json`
holds the number of phrases per file and rule. A number may only fall: the build writes the lower one, and
`--check` lists every phrase of a file that has more. To raise a number, edit that file by hand.

A rule finds patterns, not mistakes. If a phrase is right, a comment on its line gives the reason:
`style: ok (reason)`. For a docstring or a message of several lines, the comment follows the last line.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tools.build.lesson_tables import present_names
from tools.build.percent_format import SourceError, all_cells

COUNTS = Path("tools") / "build" / "rules" / "style_counts.json"
FOLDERS = ("iocourse", "tools", "tests", "docs", "solutions", "lessons")
NOT_SEARCHED = (
    "docs/exercises.md",  # printed by the build from texts that are searched where they are written
    "docs/explore/static",
    "docs/lessons",  # copies that the site makes
    "docs/_build",
    "tests/build/test_style_check.py",  # examples of what the rules find
)

_UNITS = (
    "row|word|score|query|key|head|token|tile|block|program|rank|step|pair|lesson|line|column|student|launch|"
    "round|exercise|iteration|sequence|layer|call|visit|mutant|submission|folder|file|page|panel|chip|"
    "architecture|thread|device|second|minute|evening|element|number|entry|text|group|cell|kernel|degree|seed|GPU"
)
_COUNTED = (
    "words|bytes|numbers|rows|times|lines|reads|writes|tiles|blocks|statistics|instructions|products|scores|"
    "FLOPs?|queries|keys|heads|points|minutes|seconds|ms|multiplications|additions|registers|loads|stores|one|"
    "two|three|four|once|twice|process|file|folder|word|number|row|sum|score|property|sentence|entry|idea|"
    "module|program|panel"
)
_DATA = (
    r"(?:rows?|words?|keys?|quer(?:y|ies)|tiles?|values|outputs?|scores?|programs?|ranks?|blocks?|sums|"
    r"statistics|weights|gradients?|columns?|pairs?|schedules?|kernels?|masks?|lines?|\$[KVQOSPLm]_?[ij]?\$)"
)
_SENTENCE = r"(?:(?<=[.!?:;] )|(?<=\n)|^)"
_HABITS = {  # the rule: its pattern, and what to write
    "riddle": (
        r"\A(?:What|Whether|How|Where|Which|Who|Why|When|That) ",
        "begin a docstring with what it holds, returns or does: a noun phrase or an imperative",
    ),
    "what-clause": (
        _SENTENCE + r"(?:What|Who|Whoever|Whatever|Whichever) [^.?!:;|]{4,160}[.!]",
        "name the subject, as in 'The resident array fills fast memory'",
    ),
    "inversion": (
        r"\b(?:Neither|Nor|nor|neither) (?:do|does|did|is|are|was|were|has|have|can|may|must|will)\b",
        "subject, verb, object: 'B does not appear in it either'",
    ),
    "per": (rf"\b(?:{_COUNTED}) an? (?:{_UNITS})\b", "write 'per': 'two statistics per row'"),
    "ratio": (
        r"\b[Hh]ow many (?:times|percent)\b|\btimes (?:as many|the words|what)\b",
        "write ratio, factor, percentage or fraction",
    ),
    "beside": (
        r"\b[Bb]eside\b",
        "write 'next to' (place), 'compared with' (comparison) or 'in addition to' (sum)",
    ),
    "metaphor-verb": (
        rf"\b{_DATA} (?:that |which )?(?:comes?|came|goes|go|went|meets?|met|stands?|stood|travels?|"
        r"travelled|pass(?:es)? by|pays?|paid|asks?|asked|sees?|stays?|leaves?|left|lies?|waits?|knows?|"
        r"wants?|says?)\b",  # style: ok (a pattern)
        "use the technical verb: load, store, keep, stream, evict, mask, attend to",
    ),
    "number-noun": (
        r"\b[Tt]he (?:\d{1,3}|two|four|six|eight|twelve|fourteen)"
        r"(?= (?:is|in|of|comes?|stands?|from|that)\b|[.,;:])",
        "add the noun: 'the constant 14', 'the two tiles'",
    ),
    "is-no": (
        r"(?<![Tt]here )\b(?:is|are|was|were) (?:no|none)\b(?!\s+(?:longer|more than|larger|smaller))",
        "write 'is not a', 'does not' or 'has no'",
    ),
    "archaic": (
        r"\b(?:anew|reckon\w*|nobody|anybody|somebody|dear|astronomically|afresh|of (?:one's|its|their) own|"
        r"comes? out right|at (?:the )?(?:least|most) that|once more|twice over|else (?:\d|none|the)|so many|"
        r"whole numbers?)\b",  # style: ok (a pattern)
        "use the modern word: again, estimate, users, expensive, separate, correct, otherwise, integer",
    ),
    "told-said": (
        r"\b(?:told|says?|said|asks?|asked|handed|dealt|accuses?|spoken)\b",  # style: ok (a pattern)
        "write passed, printed, returned, requested, states, argument or option",
    ),
    "evening": (r"\b[Ee]venings?\b", "write 'part' or 'lesson'"),
    "colon-chain": (
        r"[^.!?|\n:]{3,}: [^.!?|\n:]{3,}: [^.!?|\n]{3,}[.!?]",
        "one colon per sentence: write 'because', 'so' or 'but', or two sentences",
    ),
}
_TERMS = {  # private words, and the words of the field
    "label": (
        r"(?<![\w.$_#-])(?:F[0-7][a-d]?|B[0-7])(?![\w'-]*[=_(])\b",
        "write the schedule's name, such as 'FlashAttention-2 order'; labels only in tables",
    ),
    "iteration": (
        r"\b(?:a|an|the|each|every|one|inner|outer|next|last|first|more|fewer|per) (?:rounds?|turns?)\b|"
        r"\brounds of\b",
        "write 'iteration'",
    ),
    "mask-tile": (
        r"\b(?:cut|whole|unseen|hidden) (?:tiles?|ones)\b|"
        r"\btiles? (?:that (?:is|are) )?(?:cut|seen|unseen|hidden)\b",
        "write 'full', 'partial' or 'empty block'",
    ),
    "sequence": (
        r"\btexts\b(?= (?:of|on|packed|placed|is|are|lie|dealt|whose|has|and rows))|\bpacked texts?\b",
        "write 'sequences' or 'packed sequences'",
    ),
    "gpu-word": (
        r"\b(?:bend|multiprocessors?|lanes? (?:that (?:is|are) )?off|hangs? over|"
        r"no number|no chip)\b",  # style: ok (a pattern)
        "write 'ridge point', 'SM', 'masked lane', 'out of bounds', 'NaN' or 'no GPU'",
    ),
    "room": (
        r"\b[Rr]oom\b",
        "write 'capacity', 'free words', 'buffer' or 'space'; 'folder' or 'package' of code",
    ),
    "peer": (
        r"\b(?:contenders?|witness(?:es)?|testimony|yardstick|guests?|anyone|face of|faces)\b",
        "write 'baseline', 'implementation', 'measurement' or 'interface'",
    ),
}
RULES = {name: (re.compile(pattern, re.M), advice) for name, (pattern, advice) in (_HABITS | _TERMS).items()}
# Kinds of text that a rule reads; the others read every text.
_KINDS = {"riddle": ("docstring",), "colon-chain": ("docstring", "comment", "page")}
_CODE = re.compile(
    r"```.*?```|\$\$.*?\$\$|``[^`]*``|`[^`\n]*`|<!--.*?-->|https?://\S+|\]\([^)]*\)|^\s*(?:>>>|\.\.\.).*$",
    re.DOTALL | re.MULTILINE,
)
_TABLE = re.compile(r"^\|.*$", re.M)  # rows of tables may have labels
# The colon of "name: …" under Args does not count.
_ARGUMENT = re.compile(r"^ *\*{0,2}\w+(?:, \*{0,2}\w+)*: (?=\S)", re.M)
# A key of TOML is a name, which is searched where the code has it.
_KEY = re.compile(r"""^(?:"(?:[^"\\\n]|\\.)*"|[\w-]+) = """, re.M)
_EXCUSE, _NO_REASON = re.compile(r"style: ok \(\s*[^\s)]"), re.compile(r"style: ok(?! \(\s*[^\s)])")

Counts = dict[str, dict[str, int]]  # by file and rule


@dataclass(frozen=True)
class Text:
    """One text of a file.

    Attributes:
        kind: `docstring`, `comment`, `message` or `page`.
        line: the line of the file where it begins, from 1.
        text: what a person reads.
        source: the lines of the file that it is written in.
        cell: of a lesson: its position from 0, and its name if it has one.
    """

    kind: str
    line: int
    text: str
    source: tuple[str, ...]
    cell: str = ""

    def line_of(self, n: int, words: str) -> int:
        """The file's line of words that are in line `n` of the text, from 0.

        Quotes, escapes and pieces of a string shift lines, so the words are looked for from there on.
        """
        if self.kind == "page":
            return self.line + n
        first = words.split("\n")[0].strip()
        near = min(n, len(self.source) - 1)
        order = [*range(near, len(self.source)), *range(near)]
        return self.line + next((at for at in order if first in self.source[at]), near)


@dataclass(frozen=True)
class Hit:
    """A phrase that a rule finds in a line of a file."""

    path: str
    line: int
    rule: str
    words: str
    cell: str = ""


def problems(root: Path) -> list[str]:
    """Each phrase of a file that has more of its rule than recorded, and records that the build would lower.

    A checkout without `style_counts.json`, such as one that a test makes, is not searched.
    """
    recorded = read_counts(root)
    if recorded is None:
        return []
    found, faults = _search(root)
    for path, rules in found.items():
        for rule, hits in rules.items():
            if len(hits) > (allowed := recorded.get(path, {}).get(rule, 0)):
                faults += [_fault(hit, len(hits), allowed) for hit in hits]
    if not faults and counted(found) != recorded:
        faults.append(f"{COUNTS.as_posix()} is stale: run python -m tools.build")
    return faults


def lower_counts(root: Path) -> str | None:
    """`style_counts.json` with the counts that have fallen; a count that has risen keeps its number.

    None for a checkout that has no such file.
    """
    recorded = read_counts(root)
    if recorded is None:
        return None
    found = counted(_search(root)[0])
    kept = {
        path: {
            rule: min(number, recorded[path][rule])
            for rule, number in rules.items()
            if rule in recorded[path]
        }
        for path, rules in found.items()
        if path in recorded
    }
    return as_text({path: rules for path, rules in kept.items() if rules})


def as_text(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The record as it is written: a line for each file, both orders fixed."""
    lines = (
        f" {json.dumps(path)}: {json.dumps(dict(sorted(counts[path].items())))}" for path in sorted(counts)
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_counts(root: Path) -> Counts | None:
    """The recorded counts of a checkout, or None where it has no record.

    The counts of a renamed lesson are those that its former name has in the record.
    """
    path = root / COUNTS
    if not path.exists():
        return None
    present = {f"solutions/{old}.py": f"solutions/{new}.py" for old, new in present_names(root).items()}
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return {present.get(name, name): counts for name, counts in recorded.items()}


def counted(found: Mapping[str, Mapping[str, list[Hit]]]) -> Counts:
    """The number of hits by file and rule."""
    return {path: {rule: len(hits) for rule, hits in rules.items()} for path, rules in found.items() if rules}


def _fault(hit: Hit, number: int, allowed: int) -> str:
    recorded = f" ({number} in this file, {allowed} recorded)" if allowed else ""
    place = f"{hit.path}:{hit.line}{f', cell {hit.cell}' if hit.cell else ''}"
    return f'{place}: "{hit.words}" (rule {hit.rule}){recorded}: {RULES[hit.rule][1]}'


def _search(root: Path) -> tuple[dict[str, dict[str, list[Hit]]], list[str]]:
    """Hits by file and rule, and the faults of excuses without a reason."""
    found: dict[str, dict[str, list[Hit]]] = {}
    faults: list[str] = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        try:
            texts = list(texts_of(path.read_text(encoding="utf-8"), Path(name)))
        except (SyntaxError, SourceError) as error:
            faults.append(
                str(error) if isinstance(error, SourceError) else f"{name}:{error.lineno}: {error.msg}"
            )
            continue
        rules: dict[str, list[Hit]] = defaultdict(list)
        for text in texts:
            for hit in hits(text, name):
                rules[hit.rule].append(hit)
            for n, line in enumerate(text.source):
                if text.kind != "message" and _NO_REASON.search(line):
                    faults.append(f"{name}:{text.line + n}: 'style: ok' needs its reason: style: ok (reason)")
        found[name] = dict(rules)
    return found, list(dict.fromkeys(faults))


def files(root: Path) -> list[Path]:
    """The files that are searched, in order."""
    inside = (
        path
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".toml") and "__pycache__" not in path.parts
    )
    every = [*sorted(root.glob("*.md")), *inside]
    return [path for path in every if not path.relative_to(root).as_posix().startswith(NOT_SEARCHED)]


def texts_of(source: str, path: Path) -> Iterator[Text]:
    """Yield what a person reads in a file.

    Args:
        source: its content.
        path: relative to the checkout; its folder and suffix select how it is read.

    Raises:
        SyntaxError: the file is not Python.
        SourceError: the file is a lesson whose cells cannot be read.
    """
    if path.suffix != ".py":
        yield Text("page", 1, source, tuple(source.splitlines()))
    elif path.parts[0] == "solutions":
        for n, cell in enumerate(all_cells(source, path)):
            lines, first = "\n".join(cell.lines), cell.line + 1
            page = Text("page", first, lines, cell.lines)
            label = f"{n} ({cell.name})" if cell.name else f"{n}"
            for text in _python_texts(lines, first) if cell.kind == "code" else [page]:
                yield replace(text, cell=label)
    else:
        yield from _python_texts(source, 1)


def _python_texts(source: str, first: int) -> Iterator[Text]:
    lines = source.splitlines()
    tree = compile(source, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    nodes = list(ast.walk(tree))
    pieces: set[int] = set()  # constants that are read with what they are a part of
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            string = node.body[0].value  # type: ignore[attr-defined]
            pieces.add(id(string))
            yield _text("docstring", string, text, lines, first)
        elif isinstance(node, ast.JoinedStr):
            pieces |= {id(part) for part in ast.walk(node) if part is not node}
    for node in nodes:
        if id(node) in pieces:
            continue
        if isinstance(node, ast.JoinedStr):
            yield from _message(node, _words(node), lines, first)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _message(node, node.value, lines, first)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.count(" ") >= 3:
            at = token.start[0]
            yield Text("comment", first + at - 1, token.string.lstrip("#! "), (lines[at - 1],))


def _words(node: ast.JoinedStr) -> str:
    """Return the text of an f-string with a backtick in place of each value."""
    parts = (part.value if isinstance(part, ast.Constant) else "`" for part in node.values)
    return "".join(str(part) for part in parts)


def _message(node: ast.expr, text: str, lines: list[str], first: int) -> Iterator[Text]:
    if text.count(" ") >= 2:
        yield _text("message", node, text, lines, first)


def _text(kind: str, node: ast.expr, text: str, lines: list[str], first: int) -> Text:
    end = node.end_lineno or node.lineno
    return Text(kind, first + node.lineno - 1, text, tuple(lines[node.lineno - 1 : end]))


def hits(text: Text, path: str) -> Iterator[Hit]:
    """Yield each phrase of a text that a rule finds, unless a comment excuses it."""
    plain = _CODE.sub(lambda code: "\n" * code[0].count("\n") or "`", text.text)
    if text.kind == "docstring":
        plain = _ARGUMENT.sub("", plain)
    if path.endswith(".toml"):
        plain = _KEY.sub("", plain)
    without_tables = _TABLE.sub("", plain)
    for name, (pattern, _) in RULES.items():
        if text.kind not in _KINDS.get(name, (text.kind,)):
            continue
        for found in pattern.finditer(without_tables if name == "label" else plain):
            line = text.line_of(plain.count("\n", 0, found.start()), found[0])
            if not _excused(text, line):
                yield Hit(path, line, name, " ".join(found[0].split())[:90], text.cell)


def _excused(text: Text, line: int) -> bool:
    here = text.source[min(line - text.line, len(text.source) - 1)]
    last = text.source[-1] if text.kind in ("docstring", "message") else ""
    return bool(_EXCUSE.search(here) or _EXCUSE.search(last))
