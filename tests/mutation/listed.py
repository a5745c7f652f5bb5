"""Mutants that their checks accept, by exercise: the reason, the line of the reference, and its changes.

Lines are in the form of `ast.unparse`. An entry may list several changes of one line. An entry that is no
longer a mutant, or that its check rejects, must be removed: `python -m tests.mutation` and a test report it.
"""

from __future__ import annotations

from tests.mutation.listed_kernels import OF_KERNELS

Entry = tuple[str, ...]  # reason, original line, one or more new lines

# Not mistakes: the answer is correct, or differs only where the exercise has no requirement.
EQUIVALENT: dict[str, tuple[Entry, ...]] = {
    "0A": (
        (
            "K and V have as many words each",
            "return words_Q + words_K + words_V + words_O",
            "return words_Q + words_V + words_V + words_O",
            "return words_Q + words_K + words_K + words_O",
        ),
    ),
    "1A": (
        (
            "the arrays have two axes, so that axis 1 is the last",
            "E = np.exp(S - S.max(axis=-1, keepdims=True))",
            "E = np.exp(S - S.max(axis=1, keepdims=True))",
        ),
        (
            "the arrays have two axes, so that axis 1 is the last",
            "return E / E.sum(axis=-1, keepdims=True)",
            "return E / E.sum(axis=1, keepdims=True)",
        ),
    ),
    "1B": (
        (
            "np.where takes the 1.0 and 0.0 of np.tri for true and false",
            "S = np.where(np.tri(len(S), dtype=bool), S, -np.inf)",
            "S = np.where(np.tri(len(S)), S, -np.inf)",
        ),
    ),
    "1C": (
        (
            "the arrays have two axes, so that axis 1 is the last",
            "D = (P * dP).sum(axis=-1, keepdims=True)",
            "D = (P * dP).sum(axis=1, keepdims=True)",
        ),
    ),
    "1D": (
        (
            "np.where takes the 1.0 and 0.0 of np.tri for true and false",
            "S = np.where(np.tri(len(S), dtype=bool), S, -np.inf)",
            "S = np.where(np.tri(len(S)), S, -np.inf)",
        ),
    ),
    "2B": (
        (
            "A has as many columns as B has rows",
            "for k in m.blocks(depth, 1):",
            "for k in m.blocks(_, 1):",
        ),
    ),
    "2C": (
        (
            "a tile with more rows or columns than the matrix moves and holds what one of its size does",
            "tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, m + 1) if 2 * bm + 1 <= M]",
            "tiles = [(bm, (M - bm) // (bm + 1)) for bm in range(1, m + 1) if 2 * bm + 1 <= M]",
            "tiles = [(bm, min(M, (M - bm) // (bm + 1))) for bm in range(1, m + 1) if 2 * bm + 1 <= M]",
        ),
        (
            "tiles of more than m rows move no fewer words than one of m rows, which comes first",
            "tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, m + 1) if 2 * bm + 1 <= M]",
            "tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, m + 1 + 1) if 2 * bm + 1 <= M]",
            "tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, m + 2) if 2 * bm + 1 <= M]",
            "tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, M + 1) if 2 * bm + 1 <= M]",
        ),
        (
            "the depth multiplies what every tile reads, so that the same tile is the least",
            "return min(tiles, key=lambda tile: costs.matmul(m, n, k, bm=tile[0], bn=tile[1]).total)",
            "return min(tiles, key=lambda tile: costs.matmul(m, n, m, bm=tile[0], bn=tile[1]).total)",
            "return min(tiles, key=lambda tile: costs.matmul(m, n, n, bm=tile[0], bn=tile[1]).total)",
            "return min(tiles, key=lambda tile: costs.matmul(m, n, M, bm=tile[0], bn=tile[1]).total)",
        ),
    ),
    "2D": (
        (
            "every tile on or below the diagonal is made once, in whatever order, and sums only round",
            "for i in m.blocks(rows, b):",
            "for i in reversed(list(m.blocks(rows, b))):",
        ),
        (
            "every tile on or below the diagonal is made once, in whatever order, and sums only round",
            "for i in m.blocks(rows, b):\nfor j in m.blocks(rows, b):",
            "for j in m.blocks(rows, b):\nfor i in m.blocks(rows, b):",
        ),
        (
            "every tile on or below the diagonal is made once, in whatever order, and sums only round",
            "for j in m.blocks(rows, b):",
            "for j in reversed(list(m.blocks(rows, b))):",
        ),
    ),
    "3A": (
        (
            "what l and o hold before the first score is multiplied by exp(-inf - m) = 0",
            "m, l = (-np.inf, 0.0)",
            "m, l = (-np.inf, 1.0)",
            "m, l = (-np.inf, -1.0)",
        ),
    ),
    "3B": (
        (
            "what l and o hold before the first score is multiplied by exp(-inf - m) = 0",
            "m, l, o = (-np.inf, 0.0, 0.0)",
            "m, l, o = (-np.inf, 1.0, 0.0)",
            "m, l, o = (-np.inf, -1.0, 0.0)",
            "m, l, o = (-np.inf, 0.0, 1.0)",
            "m, l, o = (-np.inf, 0.0, -1.0)",
        ),
        (
            "minus infinity less any number is minus infinity, whose exponential is 0",
            "shift = m_new if m_new > -np.inf else 0.0",
            "shift = m_new if m_new > -np.inf else 1.0",
            "shift = m_new if m_new > -np.inf else -1.0",
        ),
        (
            "l is 0, or at least 1 by the maximum's own term; where it is 1, o / l is o",
            "return o / l if l > 0 else o",
            "return o / l if l > 1 else o",
        ),
    ),
    "3C": (
        (
            "minus infinity less any number is minus infinity, whose exponential is 0",
            "shift = m if m > -np.inf else 0.0",
            "shift = m if m > -np.inf else 1.0",
            "shift = m if m > -np.inf else -1.0",
        ),
    ),
    "3D": (
        (
            "the words are the same, and the check leaves a second tile of scores to spare",
            "for i in m.blocks(N, Br):",
            "for i in m.blocks(N, Br + 1):",
        ),
        (
            "the words are the same, and the check leaves a second tile of scores to spare",
            "for j in m.blocks(n, Bc):",
            "for j in m.blocks(n, Bc + 1):",
            "for j in m.blocks(n, Br):",
        ),
    ),
    "4B": (
        (
            "the first sweep moves the same words in any blocks, and holds fewer than the second",
            "for i in m.blocks(N, Br):  (1 of 2)",
            "for i in m.blocks(N, Br + 1):",
            "for i in m.blocks(N, Bc):",
        ),
    ),
    "5B": (
        (
            "each weight is computed again from its score, in any order",
            "for j in range(1, n):",
            "for j in reversed(list(range(1, n))):",
        ),
    ),
    "5C": (
        (
            "NumPy's integers are accepted as integers",
            "return int((pairs @ v.astype(int) * o).sum())",
            "return (pairs @ v.astype(int) * o).sum()",
        ),
    ),
    "5D": (
        (
            "at R = 3d² both forms give d³",
            "return (R + d * d) ** 2 / (16 * d) if 3 * d * d <= R else (R / 3) ** 1.5",
            "return (R + d * d) ** 2 / (16 * d) if 3 * d * d < R else (R / 3) ** 1.5",
        ),
        (
            "with T = 0 the bound is 0 words",
            "most, T = (0, 1)",
            "most, T = (0, 0)",
        ),
        (
            "F grows with R: where F(M + T) is beyond N²d, the T more prove 0 words",
            "while F(M + T) <= N * N * d:",
            "while F(T) <= N * N * d:",
        ),
        (
            "the loop ends at another T, after the best one: tried for N, d up to 8 and M up to 40",
            "while F(M + T) <= N * N * d:",
            "while F(N + T) <= N * N * d:",
            "while F(M + T) <= M * N * d:",
            "while F(M + T) <= N * M * d:",
        ),
        (
            "`//` and int both round down what is positive; a whole float counts as whole",
            "most = max(most, T * int(N * N * d // F(M + T)))",
            "most = max(most, T * (N * N * d // F(M + T)))",
            "most = max(most, T * int(N * N * d / F(M + T)))",
        ),
    ),
    "6A": (
        (
            "q, k, v, do and o have d columns each",
            "s = q @ k.T / np.sqrt(q.shape[1])",
            "s = q @ k.T / np.sqrt(k.shape[1])",
            "s = q @ k.T / np.sqrt(v.shape[1])",
        ),
    ),
    "6B": (
        (
            "the first sweep moves the same words in any blocks, and holds fewer than the second",
            "for i in m.blocks(N, Br):  (1 of 2)",
            "for i in m.blocks(N, Br + 1):",
            "for i in m.blocks(N, Bc):",
        ),
    ),
    "7B": (
        (
            "slow memory may be larger than what is used of it",
            "O, S = (m.new('O', (N, d)), m.new('S', (min(Br, N), N)))",
            "O, S = (m.new('O', (N, d)), m.new('S', (Br, N)))",
        ),
        (
            "blocks of one more row fit in the spare words, and no case moves more words than the formula",
            "for j in m.blocks(N, Bc):",
            "for j in m.blocks(N, Bc + 1):",
        ),
        (
            "blocks of one more column fit in the spare words, and no case moves more words than the formula",
            "for c in m.blocks(d, Bd):",
            "for c in m.blocks(d, Bd + 1):",
        ),
    ),
    "7D": (
        (
            "the fewest words are the same from either end",
            "for Bd in range(1, d + 1):",
            "for Bd in reversed(list(range(1, d + 1))):",
        ),
        (
            "blocks of one column never move the fewest words alone: tried for N, d up to 9 and M up to 120",
            "for Bd in range(1, d + 1):",
            "for Bd in range(2, d + 1):",
        ),
        (
            "a plan with a tile of 0 is left out two lines below",
            "for Bd in range(1, d + 1):",
            "for Bd in range(0, d + 1):",
        ),
        (
            "one row or column more than there are moves no fewer words",
            "for Bd in range(1, d + 1):",
            "for Bd in range(1, d + 1 + 1):",
            "for Bd in range(1, d + 2):",
        ),
        (
            "blocks of more than N columns are never the best alone: tried for N, d up to 9 and M up to 120",
            "for Bd in range(1, d + 1):",
            "for Bd in range(1, N + 1):",
        ),
        (
            "the fewest words are the same from either end",
            "for Br in range(1, N + 1):",
            "for Br in reversed(list(range(1, N + 1))):",
        ),
        (
            "a plan with a tile of 0 is left out two lines below",
            "for Br in range(1, N + 1):",
            "for Br in range(0, N + 1):",
        ),
        (
            "one row or column more than there are moves no fewer words",
            "for Br in range(1, N + 1):",
            "for Br in range(1, N + 1 + 1):",
            "for Br in range(1, N + 2):",
        ),
    ),
    "7C": (
        (
            "slow memory may be larger than what is used of it",
            "O, S = (m.new('O', (N, d)), m.new('S', (min(Br, N), N)))",
            "O, S = (m.new('O', (N, d)), m.new('S', (Br, N)))",
        ),
    ),
    "7F": (
        (
            "the next L takes the name when only these two are there, 2·Bo words; the last has no effect",
            "L.free()",
            "pass",
        ),
    ),
    "8A": (
        (
            "NumPy's integers are accepted as integers",
            "keys_loaded = int((tiles @ np.array(widths)).sum())",
            "keys_loaded = (tiles @ np.array(widths)).sum()",
        ),
        (
            "NumPy makes an array of a list by itself",
            "keys_loaded = int((tiles @ np.array(widths)).sum())",
            "keys_loaded = int((tiles @ widths).sum())",
        ),
    ),
    "8B": (
        (
            "blocks are disjoint and each is met once: their order moves no other words",
            "for i in m.blocks(N, Br, alike=mask.alike):",
            "for i in reversed(list(m.blocks(N, Br, alike=mask.alike))):",
        ),
        (
            "`alike` only lets a dry count skip equal blocks; the check runs every one",
            "for i in m.blocks(N, Br, alike=mask.alike):",
            "for i in m.blocks(N, Br):",
        ),
        (
            "blocks are disjoint and each is met once: their order moves no other words",
            "for needed in mask.columns(i.start, i.stop):",
            "for needed in reversed(list(mask.columns(i.start, i.stop))):",
        ),
    ),
    "8C": (
        (
            "tiles may be freed, and keys of a window met, in whatever order",
            "for tile in ring.popleft():",
            "for tile in reversed(list(ring.popleft())):",
        ),
        (
            "tiles may be freed, and keys of a window met, in whatever order",
            "for k, v in ring:",
            "for k, v in reversed(list(ring)):",
        ),
    ),
    "9A": (
        (
            "the fewest words are the same from either end; of equals any is right",
            "for sweep in sweeps[state]:",
            "for sweep in reversed(list(sweeps[state])):",
        ),
        (
            "words come first in each pair; of equals any is right",
            "return min(found, key=lambda one: one[0])",
            "return min(found)",
        ),
    ),
    "9C": (
        (
            "either way there is one block, of all keys",
            "for j in m.blocks(N, N):",
            "for j in m.blocks(N, N + 1):",
        ),
    ),
    "14G": (
        (
            "rows per warpgroup are 32, 64 or 128",
            "kept = [row for row in kept if row['rows_per_warpgroup'] >= 64]",
            "kept = [row for row in kept if row['rows_per_warpgroup'] >= 63]",
        ),
        (
            "the other two effects are enough for the limit of the check",
            "kept = [row for row in kept if row['warpgroups_per_sm'] >= 2]",
            "pass",
            "kept = [row for row in kept]",
            "kept = [row for row in kept if row['warpgroups_per_sm'] >= 1]",
        ),
    ),
    "14H": (
        (
            "one launch more or less, of 25 that are slow, leaves the median of 21 laps",
            "for _ in range(25):",
            "for _ in range(26):",
            "for _ in range(24):",
        ),
        (
            "the loop does not use its index",
            "for _ in range(25):",
            "for _ in reversed(list(range(25))):",
        ),
        (
            "the median of one lap more or less",
            "for _ in range(21):",
            "for _ in range(22):",
            "for _ in range(20):",
        ),
        (
            "the loop does not use its index",
            "for _ in range(21):",
            "for _ in reversed(list(range(21))):",
        ),
        (
            "the device is busy for 0.95 ms or more; the host needs at most 0.5 ms",
            "for _ in range(20):",
            "for _ in range(21):",
            "for _ in range(19):",
        ),
        (
            "the loop does not use its index",
            "for _ in range(20):",
            "for _ in reversed(list(range(20))):",
        ),
    ),
    "15A": (
        (
            "scalar products do not depend on the order of the features",
            "for l in range(g + 1):",
            "for l in reversed(list(range(g + 1))):",
        ),
        (
            "scalar products do not depend on the order of the features",
            "for axes in combinations_with_replacement(range(d), l):",
            "for axes in reversed(list(combinations_with_replacement(range(d), l))):",
        ),
        (
            "within brackets after a colon a tuple picks columns as a list does",
            "columns.append(X[:, list(axes)].prod(axis=1) / np.sqrt(orders))",
            "columns.append(X[:, axes].prod(axis=1) / np.sqrt(orders))",
        ),
    ),
    "15B": (
        (
            "a real root comes out with an imaginary part of 0 or of rounding, far within either tolerance",
            "real = roots.real[abs(roots.imag) < 1e-09 * (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) <= 1e-09 * (1 + abs(roots))]",
            "real = roots.real[roots.imag < 1e-09 * (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09 / (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09]",
            "real = roots.real[abs(roots.imag) < 1e-09 * 1]",
            "real = roots.real[abs(roots.imag) < 1e-09 * abs(roots)]",
            "real = roots.real[abs(roots.imag) < 1e-09 * (2 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09 * (0 + abs(roots))]",
        ),
        (
            "more points of the interval, where no extremum is, do not change the largest error",
            "real = roots.real[abs(roots.imag) < 1e-09 * (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09 + (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1 + abs(roots)]",
            "real = roots.real[abs(roots.imag) < 1.000000001 * (1 + abs(roots))]",
        ),
        (
            "the ends of the interval are added anyway",
            "s = np.append(real[abs(real) < R], [-R, R])",
            "s = np.append(real[abs(real) <= R], [-R, R])",
        ),
        (
            "the largest error, a rounded number, is never exactly the one allowed",
            "if largest <= error:",
            "if largest < error:",
        ),
    ),
    "15C": (
        (
            "column 0 of o is not looked at again",
            "o[:, 1:] /= o[:, :1]",
            "o[:, 0:] /= o[:, :1]",
        ),
    ),
    "15D": (
        (
            "a real root comes out with an imaginary part of 0 or of rounding, far within either tolerance",
            "real = roots.real[abs(roots.imag) < 1e-09 * (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) <= 1e-09 * (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09 / (1 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09]",
            "real = roots.real[abs(roots.imag) < 1e-09 * 1]",
            "real = roots.real[abs(roots.imag) < 1e-09 * abs(roots)]",
            "real = roots.real[abs(roots.imag) < 1e-09 * (2 + abs(roots))]",
            "real = roots.real[abs(roots.imag) < 1e-09 * (0 + abs(roots))]",
        ),
    ),
    "16A": (
        (
            "the arrays have equal numbers of rows according to the docstring",
            "Ve = np.hstack([h, np.ones((len(h), 1))])",
            "Ve = np.hstack([h, np.ones((len(x), 1))])",
            "Ve = np.hstack([h, np.ones((len(Psi), 1))])",
        ),
        (
            "the arrays have equal numbers of rows according to the docstring",
            "found = np.zeros((len(G), x.shape[1]))",
            "found = np.zeros((len(Phi), x.shape[1]))",
        ),
        (
            "Ge and Ve have dv + 1 columns each",
            "for g, v in zip(Ge.T, Ve.T, strict=True):",
            "for g, v in reversed(list(zip(Ge.T, Ve.T, strict=True))):",
            "for g, v in zip(Ge.T, Ve.T):",
            "for g, v in zip(Ge.T, Ve.T, strict=False):",
        ),
    ),
    "16C": (
        (
            "dividing by -1 is multiplying by -1",
            "ge *= -1.0",
            "ge /= -1.0",
        ),
        (
            "the machine forgets what is in fast memory when the schedule ends",
            "U.free()",
            "pass",
        ),
    ),
    "16D": (
        (
            "Q, K and V have N rows each",
            "V1 = np.hstack([V, np.ones((len(V), 1))])",
            "V1 = np.hstack([V, np.ones((len(Q), 1))])",
            "V1 = np.hstack([V, np.ones((len(K), 1))])",
        ),
        (
            "a last block without rows, where there is one, adds nothing",
            "for at in range(0, len(Q), B):",
            "for at in range(0, len(Q) + 1, B):",
        ),
        (
            "Q, K and V have N rows each",
            "for at in range(0, len(Q), B):",
            "for at in range(0, len(V), B):",
        ),
    ),
    "17A": (
        (
            "polyfit converts integers to floats",
            "for places in (np.log(layers), np.array(layers, dtype=float)):",
            "for places in (np.log(layers), np.array(layers)):",
        ),
        (
            "two fits never miss by exactly as much",
            "return (*slopes, 'power' if off[0] <= off[1] else 'exponential')",
            "return (*slopes, 'power' if off[0] < off[1] else 'exponential')",
        ),
    ),
    "17B": (
        (
            "where the norm is 0 the outer np.where, or a row of zeros, leaves nothing of it",
            "safe = np.where(norms > 0, norms, 1)",
            "safe = np.where(norms > 0, norms, 2)",
        ),
        (
            "where the norm is 0 the outer np.where, or a row of zeros, leaves nothing of it",
            "return (length * U, np.where(norms > 0, length / safe * across, 0))",
            "return (length * U, np.where(norms > 0, length / norms * across, 0))",
        ),
    ),
    "17D": (
        (
            "where there are no tiles, any default from 1 on passes",
            "if min(tiles.values(), default=1) < 1:",
            "if min(tiles.values(), default=2) < 1:",
        ),
        (
            "a tile with more rows or columns than the matrix moves and holds what one of its size does",
            "rows = {'Br': min(N, (M - d) // (2 * d + 3)), 'Bc': 1}",
            "rows = {'Br': (M - d) // (2 * d + 3), 'Bc': 1}",
            "rows = {'Br': min(M, (M - d) // (2 * d + 3)), 'Bc': 1}",
        ),
        (
            "from M = 600 on, a tile smaller by one is within the tenth that is allowed",
            "rows = {'Br': min(N, (M - d) // (2 * d + 3)), 'Bc': 1}",
            "rows = {'Br': min(N, (M - d) // (2 * d + 4)), 'Bc': 1}",
        ),
        (
            "a tile with more rows or columns than the matrix moves and holds what one of its size does",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, N), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': side, 'Bc': min(side, N), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, M), 'Bc': min(side, N), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': side, 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, M), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, N), 'Bd': side})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, N), 'Bd': min(side, N)})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, N), 'Bd': min(side, M)})",
        ),
        (
            "where the side is beyond d, flash_optimal moves fewer words than either tile",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, N), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, d), 'Bc': min(side, N), 'Bd': min(side, d)})",
            "offer('small_cache', {'Br': min(side, N), 'Bc': min(side, d), 'Bd': min(side, d)})",
        ),
        (
            "no floating-point number has a square of exactly 0.8",
            "if w is None and sigma ** 2 <= 0.8:",
            "if w is None and sigma ** 2 < 0.8:",
        ),
        (
            "the allowed errors are below 1, so the first iteration always runs",
            "g, claim = (0, 1.0)",
            "g, claim = (0, 2.0)",
        ),
        (
            "the claim, a rounded sum, is never exactly the error allowed",
            "while claim > error:",
            "while claim >= error:",
        ),
        (
            "terms from the fortieth on are below rounding for sigma below 1",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40)))",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40 + 1)))",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40 - 1)))",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, 40)))",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 41)))",
            "tail = sum((sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 39)))",
        ),
        (
            "the state has d + 1 columns: wider blocks of them, or another order, change nothing",
            "for Bd in range(1, d + 2):",
            "for Bd in reversed(list(range(1, d + 2))):",
            "for Bd in range(1, d + 2 + 1):",
            "for Bd in range(1, d + 3):",
        ),
        (
            "a block of more features than there are moves what one of all features does",
            "rc = min(comb(d + g, g), (M - d - Bd) // Bd)",
            "rc = (M - d - Bd) // Bd",
            "rc = min(comb(N + g, g), (M - d - Bd) // Bd)",
            "rc = min(comb(M + g, g), (M - d - Bd) // Bd)",
            "rc = min(comb(d + side, g), (M - d - Bd) // Bd)",
        ),
        (
            "the fewest words decide; of equals any is right",
            "words, claim, name, tiles = min(found, key=lambda one: one[:2])",
            "words, claim, name, tiles = min(found, key=lambda one: one[:3])",
            "words, claim, name, tiles = min(found, key=lambda one: one[:1])",
        ),
    ),
    "17E": (
        (
            "times are drawn, and no claim is exactly 1.05 times too good",
            "stands = claim['speedup'] <= 1.05 * speedup and claim['error'] >= error / 1.05",
            "stands = claim['speedup'] < 1.05 * speedup and claim['error'] >= error / 1.05",
            "stands = claim['speedup'] <= 1.05 * speedup and claim['error'] > error / 1.05",
        ),
    ),
    "18A": (
        (
            "the loop counts hops; which number a hop has is not used",
            "for _ in range(1, me.size):",
            "for _ in reversed(list(range(1, me.size))):",
        ),
    ),
    "18B": (
        (
            "both lists have a piece for each rank of the row",
            "for other, other_L in zip(outputs[1:], sums[1:], strict=True):",
            "for other, other_L in zip(outputs[1:], sums[1:]):",
            "for other, other_L in zip(outputs[1:], sums[1:], strict=False):",
        ),
        (
            "parts may be merged in any order",
            "for other, other_L in zip(outputs[1:], sums[1:], strict=True):",
            "for other, other_L in reversed(list(zip(outputs[1:], sums[1:], strict=True))):",
        ),
    ),
    "18C": (
        (
            "the arrays have two axes, so that axis 1 is the last",
            "D = (dO * O).sum(axis=-1)",
            "D = (dO * O).sum(axis=1)",
        ),
        (
            "the loop counts hops; which number a hop has is not used",
            "for _ in range(1, me.size):",
            "for _ in reversed(list(range(1, me.size))):",
        ),
    ),
    "19B": (
        (
            "only the order of the loads counts",
            "load, placed = ([0.0] * P, [[]] * len(lengths))",
            "load, placed = ([1.0] * P, [[]] * len(lengths))",
            "load, placed = ([-1.0] * P, [[]] * len(lengths))",
        ),
        (
            "each rank of a text gets as much, in any order",
            "for rank in placed[text]:",
            "for rank in reversed(list(placed[text])):",
        ),
    ),
    "19D": (
        (
            "Q, K and V have one shape; rows of Q are the rank's own, and read before they are overwritten",
            "mine, O = (len(K) // c, np.empty_like(Q))",
            "mine, O = (len(V) // c, np.empty_like(Q))",
            "mine, O = (len(Q) // c, np.empty_like(Q))",
            "mine, O = (len(K) // c, Q)",
            "mine, O = (len(K) // c, np.empty_like(K))",
            "mine, O = (len(K) // c, np.empty_like(V))",
        ),
        (
            "clips are answered in any order, and one beyond the last has no rows",
            "for n in range(mine):",
            "for n in reversed(list(range(mine))):",
            "for n in range(mine + 1):",
        ),
        (
            "as many first rows of V come as of K",
            "others = np.arange(len(first_k)) != me.rank * mine + n",
            "others = np.arange(len(first_v)) != me.rank * mine + n",
        ),
    ),
    "19E": (
        ("any number below 0 means no owner", "owner = np.full(h, -1)", "owner = np.full(h, -2)"),
        (
            "which rank gets which group is free",
            "for rank in range(P):",
            "for rank in reversed(list(range(P))):",
        ),
        (
            "P divides h: both are the same number",
            "while len(group) < h // P:",
            "while len(group) < h / P:",
        ),
        (
            "who sees the whole group shares two keys at least with whoever comes first, then all do",
            "common[group] = -1",
            "common[group] = 1",
            "common[group] = -2",
            "common[group] = -0",
        ),
    ),
}
EQUIVALENT |= OF_KERNELS

# Mistakes that a check accepts, always or by chance. They count against the score.
OPEN: dict[str, tuple[Entry, ...]] = {
    "13D": (
        (
            "a barrier between threads, and the interpreter has none; the line is given",
            "tl.debug_barrier()",
            "pass",
        ),
    ),
}
