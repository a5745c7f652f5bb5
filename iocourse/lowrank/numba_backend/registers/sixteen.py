"""What `steps` has, where there are 16 registers: sums of all columns at once would not fit.

A product keeps the sums of a group of columns in registers, two vectors of each, adds them to memory, and
goes on to the next group. Features of the highest degree are stored where a step makes few of them: products
run through all of these in one loop.
"""
# <!-- 16 as definition -->

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from .steps import Features, RegisterBlocking, Steps
from .writer import Numbers, Vector, Word

BESIDE = 15  # registers for sums and what is multiplied with a number, which takes the last one
BACK = 8  # sums at once on the way back, where a coordinate and its gradient are beside them


class Sixteen(RegisterBlocking):
    """As `Shape`, in 16 registers."""

    # <!-- 16 as definition -->

    holds_short = True

    @staticmethod
    def at_once(m: int) -> int:
        return max(2, BESIDE // (m + 1))

    def groups(self, columns: int) -> list[range]:
        """Columns whose sums fit into registers, u of each."""
        many = -(-columns // (BESIDE // self.u - 1))
        return [range(*edges) for edges in pairwise(columns * i // many for i in range(many + 1))]

    # ---- features

    def held(self, steps: Steps) -> Word:
        """How many features of a token are in memory."""
        return steps.base + steps.rank() - steps.short()

    def fill(self, F: Features, t: Word | int, steps: Steps) -> None:
        """The features of degrees 2 … g - 1, and of short steps of degree g, of a panel from t on."""
        super().fill(F, t, steps)
        gap = self._gap(steps)
        with self.p.loop(steps.long, steps.all) as s:
            first, *rest = steps.step(s)
            self.fill_step(F, t, first - gap, *rest)

    def _gap(self, steps: Steps) -> Word:
        """How many features of long steps, which are not held, come before those of short ones."""
        return steps.short() - steps.base

    # ---- queries: N = Tᵀ features

    def sums(
        self, T: Numbers, width: int, F: Features, t: Word | int, E: Features | None, e: Word | int,
        steps: Steps, columns: int,
    ) -> list[Vector]:  # fmt: skip
        p, N = self.p, self.p.spare
        size, ones = columns * self.tokens, F.at(0, t)

        def add(first: Word, many: Word, source: Word, factors: Numbers) -> None:
            given = (N, T + first * width, F.at(source, t), p.word(F.stride), many, factors)
            kinds = ("numbers", "numbers", "numbers", "word", "word", "numbers")
            write = partial(self._add_columns, self.groups(columns), width)
            p.routine(f"add {columns} of {width} columns", kinds, write, *given)

        for i in range(0, size, p.lanes):
            N.put(i, p.vector(0.0))
        if E:
            with p.loop(0, steps.g) as l:
                first = steps.start(l)
                add(first, steps.start(l + 1) - first, first, E.at((steps.g - l) // 2, e))
        else:
            add(p.word(0), steps.base, p.word(0), ones)
        with p.loop(steps.low, steps.long) as s:
            first, many, axis, source = steps.step(s)
            add(first, many, source, F.at(axis + 1, t))
        add(steps.short(), steps.rank() - steps.short(), steps.base, ones)
        return [N.vector(i) for i in range(0, size, p.lanes)]

    def _add_columns(
        self, groups: Sequence[range], width: int, N: Numbers, T: Numbers, rows: Numbers, stride: Word,
        many: Word, factors: Numbers,
    ) -> None:  # fmt: skip
        """N += factors times the sums over `many` features."""
        p, u, F = self.p, self.u, Features(rows, stride)

        def turn(group: range, a: Word, sums: list[Vector]) -> list[Vector]:
            f, state, found = self.several(F.at(a, 0)), T + a * width, []
            for c, column in enumerate(group):
                one = state.spread(column)
                found += [sums[c * u + i].plus(f[i], one) for i in range(u)]
            return found

        for group in groups:
            sums = p.fold(0, many, 1, partial(turn, group), p.zeros(len(group) * u))
            x, at = self.several(factors) * len(group), N + group.start * self.tokens
            for i, (y, z) in enumerate(zip(sums, x, strict=True)):
                at.put(i * p.lanes, at.vector(i * p.lanes).plus(y, z))

    # ---- keys: T += features Wᵀ

    def rows_of(
        self, size: int, F: Features, a: Word, W: Numbers, tokens: Word, x: Numbers | None
    ) -> list[Vector]:
        p, lanes = self.p, self.p.lanes

        def turn(group: range, t: Word, sums: list[Vector]) -> list[Vector]:
            f = [F.at(a + i, t).vector() for i in range(size)]
            w = [W.vector(t * self.m + column * lanes) for column in group]
            return [y.plus(f[at % size], w[at // size]) for at, y in enumerate(sums)]

        for group in self.groups(self.m):
            found = p.fold(0, tokens, lanes, partial(turn, group), p.zeros(size * len(group)))
            for at, y in enumerate(found):
                p.spare.put((at % size * self.m + group.start + at // size) * lanes, y)
        return [p.spare.vector(i * lanes) for i in range(size * self.m)]

    def add_products(
        self, T: Numbers, F: Features, X: Features, W: Numbers, scratch: Numbers, tokens: Word, steps: Steps
    ) -> None:
        p, m, short = self.p, self.m, steps.short()
        self.add_rows(T, F, 0, steps.base, W, tokens)
        self.add_rows(T + short * m, F, steps.base, steps.rank() - short, W, tokens)
        with p.loop(steps.low, steps.long) as s:
            first, many, axis, source = steps.step(s)
            x = X.at(axis, 0)
            with p.loop(0, tokens, p.lanes) as t:
                for at in range(0, m * p.lanes, p.lanes):
                    scratch.put(t * m + at, W.vector(t * m + at) * x.vector(t))
            self.add_rows(T + first * m, F, source, many, scratch, tokens)

    # ---- the way back

    def pull(
        self, T: Numbers, width: int, W: Sequence[Vector], F: Features, t: Word | int, D: Features,
        X: Features, E: Features | None, e: Word | int, steps: Steps,
    ) -> None:  # fmt: skip
        p, u, short, gap, kept = self.p, self.u, steps.short(), self._gap(steps), self.p.spare
        columns, ones = len(W) // u, F.at(0, t)
        up = partial(self._up, width, columns, kept)
        for i, w in enumerate(W):
            kept.put(i * p.lanes, w)

        def along(first: Word, last: Word, row: Word, factors: Numbers) -> None:
            given = (D.at(row, 0), T + first * width, last - first, factors, kept)
            kinds = ("numbers", "numbers", "word", "numbers", "numbers")
            write = partial(self._along, width, columns)
            p.routine(f"gradients by {columns} of {width} columns", kinds, write, *given)

        def long(s: Word) -> None:
            first, many, axis, source = steps.step(s)
            x, dx = self.several(F.at(axis + 1, t)), p.zeros(u)

            def turn(size: int, a: Word, dx: list[Vector]) -> list[Vector]:
                for i, g in enumerate(up(T + (first + a) * width, size)):
                    at, f = D.at(source + a + i, 0), self.several(F.at(source + a + i, t))
                    more = [y.plus(z, v) for y, z, v in zip(self.several(at), g, x, strict=True)]
                    self.put_several(at, more)
                    dx = [y.plus(z, v) for y, z, v in zip(dx, g, f, strict=True)]
                return dx

            for size, start, stop in self._blocks(many):
                dx = p.fold(start, stop, size, partial(turn, size), dx)
            self.put_several(X.at(axis, 0), dx)

        if E:
            with p.loop(0, steps.g) as l:
                first = steps.start(l)
                along(first, steps.start(l + 1), first, E.at((steps.g - l) // 2, e))
        else:
            along(p.word(0), steps.base, p.word(0), ones)
        along(short, steps.rank(), steps.base, ones)
        with p.loop(steps.low, steps.long) as s:
            long(s)
        with p.loop(steps.long, steps.all) as s:
            self.back(F, t, D, X, steps.step(s), lambda a: self.several(D.at(a - gap, 0)), False)
        self.pull_low(F, t, D, X, steps)

    def _along(
        self, width: int, columns: int, D: Numbers, T: Numbers, many: Word, factors: Numbers, kept: Numbers
    ) -> None:
        """D = the gradients of `many` features, times factors."""
        x = self.several(factors)
        for size, start, stop in self._blocks(many):
            with self.p.loop(start, stop, size) as a:
                for i, found in enumerate(self._up(width, columns, kept, T + a * width, size)):
                    g = [y * z for y, z in zip(found, x, strict=True)]
                    self.put_several(D + (a + i) * self.tokens, g)

    def _blocks(self, many: Word) -> list[tuple[int, Word, Word]]:
        """(features at once, first, after the last) of blocks of features, and of those left over."""
        size = max(1, BACK // self.u)
        whole = many // size * size
        return [(size, self.p.word(0), whole)] + [(1, whole, many)] * (size > 1)

    def _up(self, width: int, columns: int, kept: Numbers, state: Numbers, size: int) -> list[list[Vector]]:
        """The gradients of `size` features: their rows of a state times kept columns; one left out is 1."""
        rows, last = range(size), self.m - 1
        ends = [state.spread(i * width + last) for i in rows]
        if columns == self.m:
            w = self.several(kept + last * self.tokens)
            found = [[x * y for y in w] for x in ends]
        else:
            found = [[x] * self.u for x in ends]
        for c in range(last):
            w = self.several(kept + c * self.tokens)
            for i in rows:
                one = state.spread(i * width + c)
                found[i] = [x.plus(y, one) for x, y in zip(found[i], w, strict=True)]
        return found
