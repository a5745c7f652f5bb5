"""Equivalent mutants of lessons 10 to 14, in the form of `listed`."""

from __future__ import annotations

OF_KERNELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "10C": (
        (
            "m starts at minus infinity: what l begins with is multiplied by exp(-inf) = 0",
            "m, l = (-float('inf'), 0.0)",
            "m, l = (-float('inf'), 1.0)",
            "m, l = (-float('inf'), -1.0)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for start in range(0, n, BLOCK):  (1 of 2)",
            "for start in range(0, n + 1, BLOCK):",
        ),
        (
            "the rows of X are at least n words apart: iterations beyond n have all lanes masked",
            "for start in range(0, n, BLOCK):  (1 of 2)",
            "for start in range(0, s_x, BLOCK):",
        ),
        (
            "a row has one axis: it is the last one, and also all of them",
            "m_new = tl.maximum(m, tl.max(s, axis=0))",
            "m_new = tl.maximum(m, tl.max(s))",
            "m_new = tl.maximum(m, tl.max(s, axis=-1))",
        ),
        (
            "a row has one axis: it is the last one, and also all of them",
            "l = l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new), axis=0)",
            "l = l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new))",
            "l = l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new), axis=-1)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for start in range(0, n, BLOCK):  (2 of 2)",
            "for start in range(0, n + 1, BLOCK):",
        ),
        (
            "the rows of X are at least n words apart: iterations beyond n have all lanes masked",
            "for start in range(0, n, BLOCK):  (2 of 2)",
            "for start in range(0, s_x, BLOCK):",
        ),
        (
            "masked lanes are not stored, whatever they contain",
            "s = tl.load(X + row * s_x + j, mask=j < n, other=-float('inf'))  (2 of 2)",
            "s = tl.load(X + row * s_x + j, mask=j < n)",
            "s = tl.load(X + row * s_x + j, mask=j < n, other=float('inf'))",
            "s = tl.load(X + row * s_x + j, mask=j < n, other=0.0)",
            "s = tl.load(X + row * s_x + j, mask=j < n, other=-100.0)",
            "s = tl.load(X + row * s_x + j, mask=j < n, other=-10000.0)",
        ),
    ),
    "10D": (
        (
            "another depth of the pieces: the same words and, but for rounding, the same sums",
            "my_product_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BM, BN=BN, BK=BK)",
            "my_product_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BN, BN=BN, BK=BK)",
            "my_product_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BM, BN=BN, BK=BM)",
            "my_product_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BM, BN=BN, BK=BN)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for start in range(0, k, BK):",
            "for start in range(0, k + 1, BK):",
        ),
        (
            "the rows of A are at least k words apart: iterations beyond k have all lanes masked",
            "for start in range(0, k, BK):",
            "for start in range(0, s_a, BK):",
        ),
        (
            "x is (BK,), which broadcasts as its row (1, BK) does",
            "a = tl.load(A + i * s_a + along, mask=(i < m) & (along < k), other=0.0)",
            "a = tl.load(A + i * s_a + x, mask=(i < m) & (along < k), other=0.0)",
            "a = tl.load(A + i * s_a + along, mask=(i < m) & (x < k), other=0.0)",
        ),
        (
            "beyond k the other factor has zeros, and rows or columns beyond the edge are not stored",
            "a = tl.load(A + i * s_a + along, mask=(i < m) & (along < k), other=0.0)",
            "a = tl.load(A + i * s_a + along, mask=(i < m) & (along < k), other=1.0)",
            "a = tl.load(A + i * s_a + along, mask=(i < m) & (along < k), other=-1.0)",
        ),
        (
            "beyond k the other factor has zeros, and rows or columns beyond the edge are not stored",
            "b = tl.load(B + down * s_b + j, mask=(down < k) & (j < n), other=0.0)",
            "b = tl.load(B + down * s_b + j, mask=(down < k) & (j < n), other=1.0)",
            "b = tl.load(B + down * s_b + j, mask=(down < k) & (j < n), other=-1.0)",
        ),
        (
            "new_empty takes no more than type and device from its tensor",
            "C = A.new_empty(m, n)",
            "C = B.new_empty(m, n)",
        ),
    ),
    "11A": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=1.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for start in range(0, N, BN):",
            "for start in range(0, N + 1, BN):",
        ),
        (
            "the scores of keys that do not exist are replaced by minus infinity, whatever they are",
            "k = tl.load(K + j[:, None] * d + c, mask=there, other=0.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=there)",
            "k = tl.load(K + j[:, None] * d + c, mask=there, other=1.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=there, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + j[:, None] * d + c, mask=there, other=0.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=there, other=1.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=there, other=-1.0)",
        ),
        (
            "another height for a tile of keys: the same words and, but for rounding, the same sums",
            "forward_kernel[programs,](Q, K, V, O, LSE, N, 1.4426950408889634 * d ** (-0.5), d=d, "
            "BM=BM, BN=BN)",
            "forward_kernel[programs,](Q, K, V, O, LSE, N, 1.4426950408889634 * d ** (-0.5), d=d, "
            "BM=BM, BN=BM)",
        ),
    ),
    "11B": (
        (
            "the scores of keys that do not exist are replaced by minus infinity, whatever they are",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=1.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=1.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "a key at or before a query that exists exists too, and other rows are not stored",
            "seen = seen & (j[None, :] <= i[:, None])",
            "seen = j[None, :] <= i[:, None]",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=1.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "first is a multiple of 16, and so is BN: the next multiple is not 1 or 2 away",
            "full = (first + 1) // BN * BN",
            "full = first // BN * BN",
            "full = (first + 2) // BN * BN",
            "full = (first + 0) // BN * BN",
        ),
        (
            "full is a multiple of BN: the last iteration begins BN before it",
            "for start in range(0, full, BN):",
            "for start in range(0, full - 1, BN):",
        ),
    ),
    "11C": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=1.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=-1.0)",
        ),
        (
            "Triton's division rounds towards 0: -1 // BN is 0, as 0 // BN is",
            "begin = tl.maximum(0, first + low)",
            "begin = tl.maximum(-1, first + low)",
        ),
        (
            "no iteration begins below 0, so that there is none up to 0, nor up to -1",
            "end = tl.where(begin < end, end, 0)",
            "end = tl.where(begin < end, end, -1)",
        ),
        (
            "the scores of keys that do not exist are replaced by minus infinity, whatever they are",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=1.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=1.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=-1.0)",
        ),
        (
            "minus infinity less any number is minus infinity, whose exponential is 0",
            "shift = tl.where(m_new == float('-inf'), 0.0, m_new)",
            "shift = tl.where(m_new == float('-inf'), 1.0, m_new)",
            "shift = tl.where(m_new == float('-inf'), -1.0, m_new)",
        ),
        (
            "a row whose weights add up to 0 has an output of 0, divided by whatever it is",
            "safe = tl.where(nothing, 1.0, l)",
            "safe = tl.where(nothing, 2.0, l)",
        ),
        (
            "K and V have as many rows each",
            "band_kernel[programs,](Q, K, V, O, LSE, Nq, K.shape[0], low, high, 1.4426950408889634 * "
            "d ** (-0.5), d=d, BM=BM, BN=BN)",
            "band_kernel[programs,](Q, K, V, O, LSE, Nq, V.shape[0], low, high, 1.4426950408889634 * "
            "d ** (-0.5), d=d, BM=BM, BN=BN)",
        ),
    ),
    "11D": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N, other=0.0)",
            "q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N)",
            "q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N, other=1.0)",
            "q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for start in range(0, N, BN):",
            "for start in range(0, N + 1, BN):",
        ),
        (
            "the scores of keys that do not exist are replaced by minus infinity, whatever they are",
            "k = tl.load(K + j[:, None] * k_strides[2] + c, mask=j[:, None] < N, other=0.0)",
            "k = tl.load(K + j[:, None] * k_strides[2] + c, mask=j[:, None] < N)",
            "k = tl.load(K + j[:, None] * k_strides[2] + c, mask=j[:, None] < N, other=1.0)",
            "k = tl.load(K + j[:, None] * k_strides[2] + c, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + j[:, None] * v_strides[2] + c, mask=j[:, None] < N, other=0.0)",
            "v = tl.load(V + j[:, None] * v_strides[2] + c, mask=j[:, None] < N, other=1.0)",
            "v = tl.load(V + j[:, None] * v_strides[2] + c, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "the kernel reads only the first three strides",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:4], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:4], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:4], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:4], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
        ),
        (
            "another height for a tile of keys: the same words and, but for rounding, the same sums",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BM)",
        ),
        (
            "K and V have as many heads each",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // K.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
            "heads_kernel[programs,](Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, "
            "O.stride()[:3], H, H // V.shape[1], N, 1.4426950408889634 * d ** (-0.5), d=d, BM=BM, BN=BN)",
        ),
    ),
    "11E": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + rows, mask=here, other=0.0)",
            "q = tl.load(Q + rows, mask=here)",
            "q = tl.load(Q + rows, mask=here, other=1.0)",
            "q = tl.load(Q + rows, mask=here, other=-1.0)",
        ),
        (
            "rounds behind the last key: no lane is on, and every score of a row that exists is hidden",
            "for start in range(0, tl.minimum(first + BM, N), BN):",
            "for start in range(0, first + BM, BN):",
        ),
        (
            "keys that do not exist come after every query that does, so their scores are hidden",
            "k = tl.trans(tl.load(K + columns, mask=there, other=0.0))",
            "k = tl.trans(tl.load(K + columns, mask=there))",
            "k = tl.trans(tl.load(K + columns, mask=there, other=1.0))",
            "k = tl.trans(tl.load(K + columns, mask=there, other=-1.0))",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + columns, mask=there, other=0.0)",
            "v = tl.load(V + columns, mask=there, other=1.0)",
            "v = tl.load(V + columns, mask=there, other=-1.0)",
        ),
    ),
    "11H": (
        (
            "a thread has at most 255 registers, so a warp has at most 32 units: the same number of units",
            "registers_per_warp = -(-registers * 32 // 256) * 256",
            "registers_per_warp = -(-registers * 32 // 257) * 256",
        ),
        (
            "an SM has 256 units, and no multiple of a program's units is 257: the same quotient",
            "registers_per_warp = -(-registers * 32 // 256) * 256",
            "registers_per_warp = -(-registers * 32 // 256) * 255",
        ),
    ),
    "12A": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there, other=0.0)",
            "o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there)",
            "o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there, other=1.0)",
            "o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there, other=-1.0)",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "do = tl.load(dO + head * do_head + i[:, None] * do_row + c, mask=there, other=0.0)",
            "do = tl.load(dO + head * do_head + i[:, None] * do_row + c, mask=there)",
            "do = tl.load(dO + head * do_head + i[:, None] * do_row + c, mask=there, other=1.0)",
            "do = tl.load(dO + head * do_head + i[:, None] * do_row + c, mask=there, other=-1.0)",
        ),
    ),
    "12B": (
        (
            "the loop of 12B always passes seen",
            "if seen is not None:",
            "if True:",
            "if a is not None:",
            "if b is not None:",
            "if da is not None:",
            "if db is not None:",
            "if L is not None:",
            "if D is not None:",
            "if scale is not None:",
        ),
        (
            "12B does not use p; 12C, which calls the function too, does",
            "return (p, ds)",
            "return (s, ds)",
            "return (ds, ds)",
        ),
        (
            "K and V have one type",
            "dq = tl.dot(ds.to(k.dtype), k, dq, input_precision='ieee')",
            "dq = tl.dot(ds.to(v.dtype), k, dq, input_precision='ieee')",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + rows, mask=there, other=0.0)",
            "q = tl.load(Q + rows, mask=there)",
            "q = tl.load(Q + rows, mask=there, other=1.0)",
            "q = tl.load(Q + rows, mask=there, other=-1.0)",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "do = tl.load(dO + rows, mask=there, other=0.0)",
            "do = tl.load(dO + rows, mask=there)",
            "do = tl.load(dO + rows, mask=there, other=1.0)",
            "do = tl.load(dO + rows, mask=there, other=-1.0)",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "o = tl.load(O + rows, mask=there, other=0.0)",
            "o = tl.load(O + rows, mask=there)",
            "o = tl.load(O + rows, mask=there, other=1.0)",
            "o = tl.load(O + rows, mask=there, other=-1.0)",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=float('inf'))",
            "L_i = tl.load(LSE + first + i, mask=i < N)",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=10000.0)",
        ),
        (
            "beyond the last key every lane is off: no word moves, and nothing is added",
            "end = tl.minimum(start + BM, N) if CAUSAL else N",
            "end = start + BM if CAUSAL else N",
        ),
        (
            "weights of keys that do not exist are replaced by 0, and 0 times any finite number is 0",
            "k = tl.load(K + columns, mask=j[:, None] < N, other=0.0)",
            "k = tl.load(K + columns, mask=j[:, None] < N, other=1.0)",
            "k = tl.load(K + columns, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "weights of keys that do not exist are replaced by 0, and 0 times any finite number is 0",
            "v = tl.load(V + columns, mask=j[:, None] < N, other=0.0)",
            "v = tl.load(V + columns, mask=j[:, None] < N, other=1.0)",
            "v = tl.load(V + columns, mask=j[:, None] < N, other=-1.0)",
        ),
        (
            "a key at or before a query that exists exists too, and other rows are not stored",
            "seen = (j[None, :] < N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N",
            "seen = j[None, :] <= i[:, None] if CAUSAL else j[None, :] < N",
            "seen = (j[None, :] <= N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N",
        ),
        (
            "the line is given with the exercise, and the check names all three",
            "def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=False):",
            "def my_dq(Q, K, V, O, dO, LSE, BM=33, BN=32, causal=False):",
            "def my_dq(Q, K, V, O, dO, LSE, BM=31, BN=32, causal=False):",
            "def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=33, causal=False):",
            "def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=31, causal=False):",
            "def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=True):",
        ),
    ),
    "12C": (
        (
            "rows of keys that do not exist are computed and never stored, whatever they hold",
            "k = tl.load(K + columns, mask=there, other=0.0)",
            "k = tl.load(K + columns, mask=there)",
            "k = tl.load(K + columns, mask=there, other=1.0)",
            "k = tl.load(K + columns, mask=there, other=-1.0)",
        ),
        (
            "rows of keys that do not exist are computed and never stored, whatever they hold",
            "v = tl.load(V + columns, mask=there, other=0.0)",
            "v = tl.load(V + columns, mask=there)",
            "v = tl.load(V + columns, mask=there, other=1.0)",
            "v = tl.load(V + columns, mask=there, other=-1.0)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for at in range(begin, N, BM):",
            "for at in range(begin, N + 1, BM):",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=1.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "a query that does not exist has the weight exp(-inf) = 0, and 0 times any finite number is 0",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=1.0)",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "a query that does not exist has scores of 0, and exp(0 - 10,000) is 0 in float32",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=float('inf'))",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=10000.0)",
        ),
        (
            "a query that does not exist has the weight exp(-inf) = 0, and 0 times any finite number is 0",
            "D_i = tl.load(D + first + i, mask=i < N, other=0.0)",
            "D_i = tl.load(D + first + i, mask=i < N, other=1.0)",
            "D_i = tl.load(D + first + i, mask=i < N, other=-1.0)",
        ),
        (
            "the line is given with the exercise, and the check names all three",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=32, BN=32, causal=False):",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=33, BN=32, causal=False):",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=31, BN=32, causal=False):",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=32, BN=33, causal=False):",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=32, BN=31, causal=False):",
            "def my_dk_dv(Q, K, V, dO, LSE, D, BM=32, BN=32, causal=True):",
        ),
    ),
    "12D": (
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "k = tl.load(K + columns, mask=there, other=0.0)",
            "k = tl.load(K + columns, mask=there, other=1.0)",
            "k = tl.load(K + columns, mask=there, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + columns, mask=there, other=0.0)",
            "v = tl.load(V + columns, mask=there, other=1.0)",
            "v = tl.load(V + columns, mask=there, other=-1.0)",
        ),
        (
            "one more iteration with all lanes masked: no word is moved and nothing is added",
            "for at in range(begin, N, BM):",
            "for at in range(begin, N + 1, BM):",
        ),
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=1.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "a query that does not exist has the weight exp(-inf) = 0, and 0 times any finite number is 0",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=1.0)",
            "do = tl.load(dO + rows, mask=i[:, None] < N, other=-1.0)",
        ),
        (
            "a query that does not exist has scores of 0, and exp(0 - 10,000) is 0 in float32",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=float('inf'))",
            "L_i = tl.load(LSE + first + i, mask=i < N, other=10000.0)",
        ),
        (
            "a query that does not exist has the weight exp(-inf) = 0, and 0 times any finite number is 0",
            "D_i = tl.load(D + first + i, mask=i < N, other=0.0)",
            "D_i = tl.load(D + first + i, mask=i < N, other=1.0)",
            "D_i = tl.load(D + first + i, mask=i < N, other=-1.0)",
        ),
        (
            "a query at or behind a key that does not exist does not exist either: its weight is "
            "exp(-inf) = 0",
            "seen = there & (j[:, None] <= i[None, :]) if CAUSAL else there",
            "seen = j[:, None] <= i[None, :] if CAUSAL else there",
        ),
        (
            "the line is given with the exercise, and the check names all three",
            "def my_fused(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=False):",
            "def my_fused(Q, K, V, O, dO, LSE, BM=33, BN=32, causal=False):",
            "def my_fused(Q, K, V, O, dO, LSE, BM=31, BN=32, causal=False):",
            "def my_fused(Q, K, V, O, dO, LSE, BM=32, BN=33, causal=False):",
            "def my_fused(Q, K, V, O, dO, LSE, BM=32, BN=31, causal=False):",
            "def my_fused(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=True):",
        ),
    ),
    "12E": (
        (
            "Q, K and V have one type and lie on one device",
            "return (torch.empty_like(Q), Q.new_empty(Q.shape[:2], dtype=torch.float32))",
            "return (torch.empty_like(Q), K.new_empty(Q.shape[:2], dtype=torch.float32))",
            "return (torch.empty_like(Q), V.new_empty(Q.shape[:2], dtype=torch.float32))",
        ),
        (
            "O has the shape, type and strides of Q, K and V",
            "return (torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V))",
            "return (torch.empty_like(O), torch.empty_like(K), torch.empty_like(V))",
            "return (torch.empty_like(Q), torch.empty_like(O), torch.empty_like(V))",
            "return (torch.empty_like(Q), torch.empty_like(K), torch.empty_like(O))",
        ),
    ),
    "13B": (
        (
            "tiles of keys past the last hold no pair that is seen, and are listed nowhere",
            "rows, columns = (-(-Nq // BM), -(-Nk // BN))",
            "rows, columns = (-(-Nq // BM), -(-Nk * BN))",
            "rows, columns = (-(-Nq // BM), --Nk)",
        ),
        (
            "0 and 1 act like False and True, and patterns are converted to uint8 at the end",
            "seen = np.zeros((rows * BM, columns * BN), dtype=bool)",
            "seen = np.zeros((rows * BM, columns * BN))",
        ),
        (
            "a row of tiles has a query that exists: a tile without a masked pair is visited",
            "plain = np.flatnonzero(hit[row] & whole[row])",
            "plain = np.flatnonzero(whole[row])",
            "plain = np.flatnonzero(whole[row] & whole[row])",
        ),
        (
            "no kernel reads the slot of a full block",
            "slots += [0] * len(plain) + [len(patterns) + k for k in range(len(cut))]",
            "slots += [1] * len(plain) + [len(patterns) + k for k in range(len(cut))]",
            "slots += [-1] * len(plain) + [len(patterns) + k for k in range(len(cut))]",
        ),
        (
            "rows with equally many tiles may stand in either order",
            "order = np.argsort(-hit.sum(axis=1), kind='stable')",
            "order = np.argsort(-hit.sum(axis=1))",
        ),
        (
            "the same integers in another width, which the check accepts too",
            "return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32), "
            "np.array(slots, dtype=np.int32), np.array(patterns, dtype=np.uint8).reshape(-1, BM, "
            "BN), order.astype(np.int32))",
            "return (np.array(spans), np.array(entries, dtype=np.int32), np.array(slots, "
            "dtype=np.int32), np.array(patterns, dtype=np.uint8).reshape(-1, BM, BN), "
            "order.astype(np.int32))",
            "return (np.array(spans, dtype=np.int32), np.array(entries), np.array(slots, "
            "dtype=np.int32), np.array(patterns, dtype=np.uint8).reshape(-1, BM, BN), "
            "order.astype(np.int32))",
            "return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32), "
            "np.array(slots), np.array(patterns, dtype=np.uint8).reshape(-1, BM, BN), "
            "order.astype(np.int32))",
            "return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32), "
            "np.array(slots, dtype=np.int32), np.array(patterns).reshape(-1, BM, BN), "
            "order.astype(np.int32))",
        ),
        (
            "NumPy works out a size below 0, whichever it is",
            "return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32), "
            "np.array(slots, dtype=np.int32), np.array(patterns, dtype=np.uint8).reshape(-1, BM, "
            "BN), order.astype(np.int32))",
            "return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32), "
            "np.array(slots, dtype=np.int32), np.array(patterns, dtype=np.uint8).reshape(-2, BM, "
            "BN), order.astype(np.int32))",
        ),
    ),
    "13D": (
        (
            "start is 0, or BN at least",
            "load_end = tl.where(start > 0, N, 0)",
            "load_end = tl.where(start > 1, N, 0)",
        ),
        (
            "no row lies before 0, and none before -1",
            "load_end = tl.where(start > 0, N, 0)",
            "load_end = tl.where(start > 0, N, -1)",
        ),
        (
            "keys that do not exist have the weight 0, and columns beyond d are not stored",
            "v = tl.load(V + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=0.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=1.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=-1.0)",
        ),
        (
            "in iteration 0 the previous value is multiplied by exp(-inf) = 0; other lanes are not stored",
            "so_far = tl.load(O_sum + rows, mask=(i[:, None] < load_end) & there, other=0.0)",
            "so_far = tl.load(O_sum + rows, mask=(i[:, None] < load_end) & there, other=1.0)",
            "so_far = tl.load(O_sum + rows, mask=(i[:, None] < load_end) & there, other=-1.0)",
        ),
        (
            "another width of the slices: the same words and the same sums",
            "sliced_kernel[programs,](Q, K, V, O_sum, O, LSE, N, d, 1.4426950408889634 * d ** "
            "(-0.5), BM=BM, BN=BN, BD=BD)",
            "sliced_kernel[programs,](Q, K, V, O_sum, O, LSE, N, d, 1.4426950408889634 * d ** "
            "(-0.5), BM=BM, BN=BN, BD=BN)",
            "sliced_kernel[programs,](Q, K, V, O_sum, O, LSE, N, d, 1.4426950408889634 * d ** "
            "(-0.5), BM=BM, BN=BN, BD=BM)",
        ),
        (
            "another width of the slices of Q and K: the same words and, but for rounding, the same sums",
            "s = scores_in_slices(Q, K, i, j, N, d, BM, BN, BD) * scale",
            "s = scores_in_slices(Q, K, i, j, N, d, BM, BN, BM) * scale",
            "s = scores_in_slices(Q, K, i, j, N, d, BM, BN, BN) * scale",
        ),
    ),
    "13C": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=1.0)",
            "q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=-1.0)",
        ),
        (
            "the scores of keys that do not exist are 0 in the pattern and replaced by minus "
            "infinity, whatever they are",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=1.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=1.0)",
            "v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=-1.0)",
        ),
        (
            "a row whose weights add up to 0 has an output of 0, divided by whatever it is",
            "safe = tl.where(nothing, 1.0, l)",
            "safe = tl.where(nothing, 2.0, l)",
        ),
    ),
    "14B": (
        (
            "the bytes alone are taken, and they do not depend on the bandwidth",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, gbytes_per_s)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, B)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, H)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, H_kv)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, N)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, d)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, itemsize)",
            "moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, tflops)",
        ),
        (
            "where both times are equal, both roofs limit",
            "return (max(multiplying, moving), 'memory' if moving > multiplying else 'products')",
            "return (max(multiplying, moving), 'memory' if moving >= multiplying else 'products')",
        ),
    ),
    "14C": (
        (
            "parts beyond the last have the weight 0, and 0 times any finite number is 0",
            "o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=0.0)",
            "o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=1.0)",
            "o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=-1.0)",
        ),
        (
            "the log-sum-exps of a head have one axis: it is also the last",
            "m = tl.max(L, 0)",
            "m = tl.max(L, -1)",
        ),
        (
            "minus infinity less any number is minus infinity, whose exponential is 0",
            "m = tl.where(m == float('-inf'), 0.0, m)",
            "m = tl.where(m == float('-inf'), 1.0, m)",
            "m = tl.where(m == float('-inf'), -1.0, m)",
        ),
        (
            "the log-sum-exps of a head have one axis: it is also the last",
            "total = tl.sum(weights, 0)",
            "total = tl.sum(weights, -1)",
        ),
        (
            "a row whose weights add up to 0 has an output of 0, divided by whatever it is",
            "safe = tl.where(total == 0.0, 1.0, total)",
            "safe = tl.where(total == 0.0, 2.0, total)",
        ),
        (
            "where the sum is 0, minus infinity is chosen in place of its logarithm; elsewhere the "
            "two are equal",
            "tl.store(LSE + row, tl.where(total == 0.0, float('-inf'), m + tl.log(safe)))",
            "tl.store(LSE + row, tl.where(total == 0.0, float('-inf'), m + tl.log(total)))",
        ),
    ),
    "14D": (
        (
            "rows that do not exist are computed and never stored, whatever they hold",
            "q = tl.load(Q + rows, mask=i[:, None] < end, other=0.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < end)",
            "q = tl.load(Q + rows, mask=i[:, None] < end, other=1.0)",
            "q = tl.load(Q + rows, mask=i[:, None] < end, other=-1.0)",
        ),
        (
            "the scores of keys that do not exist are replaced by minus infinity, whatever they are",
            "k = tl.load(K + at, mask=j[:, None] < end, other=0.0)",
            "k = tl.load(K + at, mask=j[:, None] < end)",
            "k = tl.load(K + at, mask=j[:, None] < end, other=1.0)",
            "k = tl.load(K + at, mask=j[:, None] < end, other=-1.0)",
        ),
        (
            "keys that do not exist have the weight 0, and 0 times any finite number is 0",
            "v = tl.load(V + at, mask=j[:, None] < end, other=0.0)",
            "v = tl.load(V + at, mask=j[:, None] < end, other=1.0)",
            "v = tl.load(V + at, mask=j[:, None] < end, other=-1.0)",
        ),
        (
            "another height for a tile of keys: the same words and, but for rounding, the same sums",
            "packed_kernel[programs,](Q, K, V, O, cu, blocks, H, 1.4426950408889634 * d ** (-0.5), "
            "d=d, BM=BM, BN=BN)",
            "packed_kernel[programs,](Q, K, V, O, cu, blocks, H, 1.4426950408889634 * d ** (-0.5), "
            "d=d, BM=BM, BN=BM)",
        ),
    ),
}
