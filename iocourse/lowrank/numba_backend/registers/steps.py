"""What the passes are written from: features of a tile, their products with a state, and the way back.

The tokens of a tile are neighbours in memory, feature by feature: feature a of token t is F[a · stride + t].
Monomials of the highest degree g are never stored. A block of them is one coordinate times features of degree
g - 1, so that a product with W = [V, 1] is one of those features with W times the coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...polynomials import CLIP
from .rows import add_sums
from .writer import Numbers, Program, Vector, Word, Words

HEAD = 8  # words of a plan before where each degree begins
LONG = 32  # features of a step: from here on it pays to multiply their sum with the coordinate, not each
REGISTERS = 28  # of 32, which hold sums; what they are multiplied with is read from memory


@dataclass(frozen=True)
class Steps:
    """The plan of `monomials` in memory: g, features below degree g, steps below degree g, steps, tokens of a
    tile, addresses of `parts` and `weights`, steps up to the last long one of degree g; then where each
    degree begins, and first, last, axis and source of each step.
    """

    words: Words

    @property
    def g(self) -> Word:
        """The degree."""
        return self.words[0]

    @property
    def base(self) -> Word:
        """How many features are of a degree below g."""
        return self.words[1]

    @property
    def low(self) -> Word:
        """How many steps make them."""
        return self.words[2]

    @property
    def all(self) -> Word:
        """How many steps there are."""
        return self.words[3]

    @property
    def tile(self) -> Word:
        """How many tokens of keys are worked on at once."""
        return self.words[4]

    @property
    def parts(self) -> Numbers:
        """1, 1, 1/2, 1/3 …"""
        return self.words.numbers(5)

    @property
    def weights(self) -> Numbers:
        """Of each monomial in the polynomial."""
        return self.words.numbers(6)

    @property
    def long(self) -> Word:
        """How many steps there are up to the last of degree g that makes `LONG` features or more."""
        return self.words[7]

    def start(self, degree: Word | int) -> Word:
        """Where a degree's features begin."""
        return self.words[self.words.program.word(HEAD) + degree]

    def rank(self) -> Word:
        """How many features there are."""
        return self.start(self.g + 1)

    def step(self, s: Word) -> tuple[Word, Word, Word, Word]:
        """The first feature of a step, how many it makes, the axis and the first source."""
        at = self.g + (HEAD + 2) + s * 4
        first, last, axis, source = (self.words[at + i] for i in range(4))
        return first, last - first, axis, source

    def short(self) -> Word:
        """The first feature of degree g that a step of fewer than `LONG` makes; the rank where none does."""
        return self.step(self.long)[0]


@dataclass(frozen=True)
class Features:
    """Room for the features of a tile of `stride` tokens, as many as a `Shape` holds."""

    numbers: Numbers
    stride: Word | int

    def after(self, a: Word | int) -> Features:
        """Those from feature a on."""
        return Features(self.at(a, 0), self.stride)

    def at(self, a: Word | int, t: Word | int) -> Numbers:
        """Feature a of the tokens from t on."""
        return self.numbers + (self.numbers.program.word(a) * self.stride + t)


@dataclass(frozen=True)
class RegisterBlocking:
    """d coordinates, m = d_v + 1 columns, u vectors or features worked on at once, in 32 registers."""

    # <!-- 32 as definition -->

    p: Program
    d: int
    m: int
    u: int
    holds_short: ClassVar[bool] = False  # whether features of short steps of degree g are in memory

    @staticmethod
    def at_once(m: int) -> int:
        """The largest u there can be."""
        return max(1, REGISTERS // m)

    @property
    def tokens(self) -> int:
        """Of a panel: those of u vectors."""
        return self.u * self.p.lanes

    # ---- features

    def several(self, A: Numbers) -> list[Vector]:
        """u vectors that follow each other."""
        return [A.vector(i * self.p.lanes) for i in range(self.u)]

    def put_several(self, A: Numbers, vectors: Sequence[Vector]) -> None:
        """The opposite."""
        for i, x in enumerate(vectors):
            A.put(i * self.p.lanes, x)

    def ones(self, F: Features, stop: Word | int) -> None:
        """Feature 0."""
        with self.p.loop(0, stop, self.p.lanes) as t:
            F.at(0, t).put(0, self.p.vector(1.0))

    def held(self, steps: Steps) -> Word:
        """How many features of a token are in memory."""
        return steps.base

    def fill(self, F: Features, t: Word | int, steps: Steps) -> None:
        """The features of degrees 2 … g - 1 of a panel from t on; 0 and the coordinates are there."""
        with self.p.loop(0, steps.low) as s:
            self.fill_step(F, t, *steps.step(s))

    def fill_step(
        self, F: Features, t: Word | int, first: Word, many: Word, axis: Word, source: Word
    ) -> None:
        """`many` features from `first` on: those from `source` on times a coordinate."""
        x = self.several(F.at(axis + 1, t))
        with self.p.loop(0, many) as a:
            found = [f * y for f, y in zip(self.several(F.at(source + a, t)), x, strict=True)]
            self.put_several(F.at(first + a, t), found)

    def half_variances(self, F: Features, t: Word | int, covariance: Numbers) -> list[Vector]:
        """-σ²/2 of each row's logits, clipped; σ² = xᵀ covariance x."""
        p = self.p
        given = (F.at(1, t), p.word(F.stride), covariance, p.spare)
        p.routine("half variances", ("numbers", "word", "numbers", "numbers"), self._half_variances, *given)
        return self.several(p.spare)

    def _half_variances(self, x: Numbers, stride: Word, covariance: Numbers, found: Numbers) -> None:
        p, u = self.p, self.u
        twice, half, floor = p.zeros(u), p.vector(-0.5), p.vector(-CLIP / 2)
        columns = [self.several(x + stride * i) for i in range(self.d)]
        for j, x_j in enumerate(columns):
            inner = p.zeros(u)
            for i in range(j):
                c = covariance.spread(i * self.d + j)
                inner = [s.plus(y, c) for s, y in zip(inner, columns[i], strict=True)]
            c = covariance.spread(j * (self.d + 1))
            both = [(s + s).plus(y, c) for s, y in zip(inner, x_j, strict=True)]
            twice = [s.plus(y, z) for s, y, z in zip(twice, x_j, both, strict=True)]
        self.put_several(found, [(s * half).largest(floor) for s in twice])

    def series(self, E: Features, t: Word | int, halves: Sequence[Vector], steps: Steps) -> None:
        """Row k of E: the exponential series of the halves, cut after k terms."""
        one, parts = [self.p.vector(1.0)] * self.u, steps.parts
        self.put_several(E.at(0, t), one)

        def turn(k: Word, carried: list[Vector]) -> list[Vector]:
            powers, sums = carried[: self.u], carried[self.u :]
            part = parts.spread(k)
            powers = [x * h * part for x, h in zip(powers, halves, strict=True)]
            sums = [s + x for s, x in zip(sums, powers, strict=True)]
            self.put_several(E.at(k, t), sums)
            return powers + sums

        self.p.fold(1, steps.g // 2 + 1, 1, turn, one + one)

    def times_series(self, F: Features, E: Features, t: Word | int, steps: Steps) -> None:
        """Features of degree l below g - 1 times row ⌊(g - l)/2⌋ of E, a panel from t on."""
        with self.p.loop(0, steps.g - 1) as l:
            factors = self.several(E.at((steps.g - l) // 2, t))
            with self.p.loop(steps.start(l), steps.start(l + 1)) as a:
                found = [f * e for f, e in zip(self.several(F.at(a, t)), factors, strict=True)]
                self.put_several(F.at(a, t), found)

    # ---- queries: N = Tᵀ features

    def sums(
        self,
        T: Numbers,
        width: int,
        F: Features,
        t: Word | int,
        E: Features | None,
        e: Word | int,
        steps: Steps,
        columns: int,
    ) -> list[Vector]:
        """Of so many columns, column by column, u vectors: Σ T[a, column] · feature a of the panel from t on.

        width: of a row of T. E: what each degree's features are multiplied with, from its token e on.
        """
        p, u = self.p, self.u

        def more(N: list[Vector], f: list[Vector], a: Word) -> list[Vector]:
            state, found = T + a * width, list(N)
            for c in range(columns):
                one = state.spread(c)
                for i in range(u):
                    found[c * u + i] = N[c * u + i].plus(f[i], one)
            return found

        def degree(l: Word, N: list[Vector]) -> list[Vector]:
            factors = self.several(E.at((steps.g - l) // 2, e)) if E else []

            def feature(a: Word, N: list[Vector]) -> list[Vector]:
                f = self.several(F.at(a, t))
                return more(N, [x * y for x, y in zip(f, factors, strict=True)] if factors else f, a)

            return p.fold(steps.start(l), steps.start(l + 1), 1, feature, N)

        def long(s: Word, N: list[Vector]) -> list[Vector]:
            first, many, axis, source = steps.step(s)

            def product(a: Word, inner: list[Vector]) -> list[Vector]:
                return more(inner, self.several(F.at(source + a, t)), first + a)

            inner = p.fold(0, many, 1, product, p.zeros(columns * u))
            x = self.several(F.at(axis + 1, t)) * columns
            return [n.plus(y, z) for n, y, z in zip(N, inner, x, strict=True)]

        def short(s: Word, N: list[Vector]) -> list[Vector]:
            first, many, axis, source = steps.step(s)
            x = self.several(F.at(axis + 1, t))

            def product(a: Word, N: list[Vector]) -> list[Vector]:
                f = self.several(F.at(source + a, t))
                return more(N, [y * z for y, z in zip(f, x, strict=True)], first + a)

            return p.fold(0, many, 1, product, N)

        N = p.fold(0, steps.g, 1, degree, p.zeros(columns * u))
        N = p.fold(steps.low, steps.long, 1, long, N)
        return p.fold(steps.long, steps.all, 1, short, N)

    # ---- keys: T += features Wᵀ

    def add_rows(
        self, T: Numbers, F: Features, source: Word | int, many: Word, W: Numbers, tokens: Word,
        x: Numbers | None = None,
    ) -> None:  # fmt: skip
        """T += features source … source + many - 1 of the tile, times Wᵀ; W (tokens / 16, m, 16).

        x: a number for each token, which the features are multiplied with before.
        """
        kinds = ("numbers", "numbers", "word", "word", "numbers", "word", *["numbers"] * bool(x))
        given = (T, F.at(source, 0), F.stride, many, W, tokens, *[x] * bool(x))
        self.p.routine(f"add rows{' times x' * bool(x)}", kinds, self._add_rows, *given)

    def _add_rows(
        self, T: Numbers, rows: Numbers, stride: Word, many: Word, W: Numbers, tokens: Word,
        x: Numbers | None = None,
    ) -> None:  # fmt: skip
        F, whole = Features(rows, stride), many // self.u * self.u
        blocks = [(self.u, self.p.word(0), whole)] + [(1, whole, many)] * (self.u > 1)
        for size, start, stop in blocks:
            with self.p.loop(start, stop, size) as a:
                found = self.rows_of(size, F, a, W, tokens, x)
                add_sums(T + a * self.m, found, self.p.vector(0.0))

    def rows_of(
        self, size: int, F: Features, a: Word, W: Numbers, tokens: Word, x: Numbers | None
    ) -> list[Vector]:
        """What features a … a + size - 1 add, column by column, its lanes not summed yet."""

        def turn(t: Word, acc: list[Vector]) -> list[Vector]:
            f = [F.at(a + i, t).vector() for i in range(size)]
            f = [y * x.vector(t) for y in f] if x else f
            found = list(acc)
            for c in range(self.m):
                w = W.vector(t * self.m + c * self.p.lanes)
                for i in range(size):
                    found[i * self.m + c] = found[i * self.m + c].plus(f[i], w)
            return found

        return self.p.fold(0, tokens, self.p.lanes, turn, self.p.zeros(size * self.m))

    def add_products(
        self, T: Numbers, F: Features, X: Features, W: Numbers, scratch: Numbers, tokens: Word, steps: Steps
    ) -> None:
        """T (rank, m) += all features of a tile times Wᵀ; X (d rows): its coordinates; scratch: as W."""
        self.add_rows(T, F, 0, steps.base, W, tokens)
        with self.p.loop(steps.low, steps.all) as s:
            first, many, axis, source = steps.step(s)
            state, x = T + first * self.m, X.at(axis, 0)
            few = (
                many < 2 * self.m
            )  # then it is less work to multiply the features with the coordinate than W
            with self.p.when(few):
                self.add_rows(state, F, source, many, W, tokens, x)
            with self.p.loop(self.p.either(few, tokens, self.p.word(0)), tokens, self.p.lanes) as t:
                for c in range(self.m):
                    at = t * self.m + c * self.p.lanes
                    scratch.put(at, W.vector(at) * x.vector(t))
            self.add_rows(state, F, source, self.p.either(few, self.p.word(0), many), scratch, tokens)

    # ---- the way back

    def pull(
        self, T: Numbers, width: int, W: Sequence[Vector], F: Features, t: Word | int, D: Features,
        X: Features, E: Features | None, e: Word | int, steps: Steps,
    ) -> None:  # fmt: skip
        """X (d rows, a panel) = the gradient of the coordinates from that of the features, T times W.

        W: u vectors a column; where the last column is all ones, without it. D: room for the gradient of the
        features below degree g.
        """
        p, u = self.p, self.u

        def up(a: Word) -> list[Vector]:
            state = T + a * width
            ones = len(W) < self.m * u
            found = [state.spread(self.m - 1)] * u if ones else [x * state.spread(0) for x in W[:u]]
            for c in range(1 - ones, self.m - ones):
                one = state.spread(c)
                found = [x.plus(W[c * u + i], one) for i, x in enumerate(found)]
            return found

        if E:
            with p.loop(0, steps.g) as l:
                factors = self.several(E.at((steps.g - l) // 2, e))
                with p.loop(steps.start(l), steps.start(l + 1)) as a:
                    self.put_several(D.at(a, 0), [x * y for x, y in zip(up(a), factors, strict=True)])
        else:
            with p.loop(0, steps.base) as a:
                self.put_several(D.at(a, 0), up(a))

        with p.loop(steps.low, steps.all) as s:
            self.back(F, t, D, X, steps.step(s), up, False)
        self.pull_low(F, t, D, X, steps)

    def back(
        self, F: Features, t: Word | int, D: Features, X: Features, step: tuple[Word, Word, Word, Word],
        gradient: Callable[[Word], list[Vector]], begun: bool,
    ) -> None:  # fmt: skip
        """A step's part of the gradients D of its sources and X of its coordinate, which may have begun."""
        first, many, axis, source = step
        x = self.several(F.at(axis + 1, t))

        def turn(a: Word, dx: list[Vector]) -> list[Vector]:
            g, at = gradient(first + a), D.at(source + a, 0)
            self.put_several(at, [y.plus(z, v) for y, z, v in zip(self.several(at), g, x, strict=True)])
            f = self.several(F.at(source + a, t))
            return [y.plus(z, v) for y, z, v in zip(dx, g, f, strict=True)]

        before = self.several(X.at(axis, 0)) if begun else self.p.zeros(self.u)
        self.put_several(X.at(axis, 0), self.p.fold(0, many, 1, turn, before))

    def pull_low(self, F: Features, t: Word | int, D: Features, X: Features, steps: Steps) -> None:
        """The parts of all steps below degree g, and of the coordinates themselves."""
        with self.p.loop(0, steps.low) as s:
            step = steps.step(steps.low - 1 - s)
            self.back(F, t, D, X, step, lambda a: self.several(D.at(a, 0)), True)
        for i in range(self.d):
            self.put_several(
                X.at(i, 0),
                [x + y for x, y in zip(self.several(X.at(i, 0)), self.several(D.at(i + 1, 0)), strict=True)],
            )
