"""Programs of the declarative language: those of its document, as they are there and corrected."""

from __future__ import annotations

from benchmarks.cases.declarative import ATTENTION as ATTENTION
from benchmarks.cases.declarative import GELU as GELU
from benchmarks.cases.declarative import LAYER_NORM as LAYER_NORM

MATMUL = """\
A = Tensor<M, K; dtype>
B = Tensor<K, N; dtype>
y = compute (shape = [M, N]) |i, j| {
	reduce (shape = [K], op = sum) |k| {
		A[i, k] * B[k, j]
	}
}
"""

SOFTMAX = """\
A = Tensor<B, D; dtype>
t1 = compute (shape = [B, D]) |bi, di| {
	m = reduce (shape = [D], op = max) |di| A[bi, di] // inner scope di
	e = exp(A[bi, di] - m)
	e
}

y = compute (shape = [B, D]) |bi, di| {
	s = reduce (shape = [D], op = sum) |di| t1[bi, di]
	t1[bi, di] / s
}
"""

SUM = "A = Tensor<N; dtype>\ny = reduce(shape = [N], op = sum) |i| A[i]\n"

SUM_BY_HALVES = """\
A = Tensor<N; dtype>
yt = compute(shape = [2]) |i| {
	reduce(shape = [N/2], op = sum) |j| A[i * N / 2 + j]
}
y = yt[0] + yt[1]
"""

SCAN = "A = Tensor<N; dtype>\ny = scan(shape = [N], op = sum) |i| A[i]\n"

SCAN_BY_HALVES_WRONG = """\
A = Tensor<N; dtype>
yt = compute(shape = 2) |i| {
	scan(shape = [N/2], op = sum) |j| A[i * N / 2 + j]
}
# yt.shape = [2, N / 2]
y = compute (shape = [N]) |i| {
	if i < N / 2 {
		yt[0, i]
	} else {
		yt[0, i - (N / 2)] + yt[1, i]
	}
}
"""

SCAN_BY_HALVES = SCAN_BY_HALVES_WRONG.replace("yt[0, i - (N / 2)] + yt[1, i]", "yt[0, N / 2 - 1] + yt[1, i - N / 2]")

MAPPED = """\
model: Tensor<seq_len, 768> -> Tensor<seq_len, 768>

data: Tensor<B, seq_len, 768>
y: Tensor<B, seq_len, 768> = compute (shape=[B]) |bi| {
	model(data[bi, :, :])
}
"""

STAGED_WRONG = """\
A = Tensor<M, K; dtype>
B = Tensor<K, N; dtype>
y = compute (shape = [M, N]) |i, j| {
	a_temp = read (shape = [K]) |ri| A[ri]
	b_temp = read (shape = [K]) |ri| B[ri]
	reduce (shape = [K], op = sum) |k| {
		a_temp[k] * b_temp[k]
	}
}
"""

STAGED = STAGED_WRONG.replace("A[ri]", "A[i, ri]").replace("B[ri]", "B[ri, j]")

TILED_WRONG = """\
A = Tensor<N, K; dtype>
B = Tensor<K, M; dtype>

tile_n = tune(N) // dependent compile time constants
tile_k = tune(K)
tile_m = tune(M)

n_tiles = cdiv(N, tile_n)
m_tiles = cdiv(M, tile_m)
k_repeats = cdiv(K, tile_k)

y = grid (dim = [n_tiles, m_tiles]) |ni, mi| {
	offset_n = ni * tile_n
	offset_m = mi * tile_m
	init: Tensor<tile_n, tile_m; dtype> = zeros([tile_n, tile_m])

	res = affine_for (end = k_repeats, init = init) |ki, res| {
		offset_k = ki * tile_k
		block_a = compute (shape = [tile_n, tile_k]) |ni, ki| {
			if ni + offset_n < N and ki + offset_k < K
			then A[ni + offset_n, ki + offset_k]
			else 0
		}

		block_b: Tensor<tile_k, tile_m> = ...
		res_c = compute (shape = [tile_n, tile_m]) |ni, mi| {
			reduce (shape = [tile_k]) |ki| {
				block_a[ni, ki] * block_m[ki, mi]
			}
		}
		res + res_c
	}

}
"""

TILED = (
    TILED_WRONG.replace("y = grid", "y: Tensor<N, M; dtype> = grid")
    .replace(
        "block_b: Tensor<tile_k, tile_m> = ...",
        "block_b: Tensor<tile_k, tile_m> = compute (shape = [tile_k, tile_m]) |ki, mi| {\n"
        "\t\t\tif ki + offset_k < K and mi + offset_m < M then B[ki + offset_k, mi + offset_m] else 0\n\t\t}",
    )
    .replace("reduce (shape = [tile_k])", "reduce (shape = [tile_k], op = sum)")
    .replace("block_m", "block_b")
    .replace("\t}\n\n}", "\t}\n\tres\n}")
)

THREADS_WRONG = """\
x1: Tensor<M, K; f32>
y1 = empty (shape = [M, K], 
			dtype = f32, 
			layout = rowmajor,
			type = smem)

thread (blockDim: int, shared = [y1]) |thread_id: int| {
	x1[1] = 3 // not allowed, cannot mutate outer scope
	s1 = Shared<3, 3; f32> // shared with all threads of current scope
	s1[1] = 3 // allowed
	r1 = Register<1, 2; f32>
	sync()
	shared.0[thread_id] = 1
}

// the above thread definition implicitly redeclares y1, so that we don't get 
// into ownership / mutabilty semantics
"""  # noqa: W291  as in the document

THREADS = """\
x1: Tensor<M, K; f32>
y1 = empty (shape = [M, K], dtype = f32, layout = rowmajor, type = smem)

thread (blockDim: int, shared = [y1]) |thread_id: int| {
	s1 = Shared<K; f32>
	r1 = Register<1, 2; f32>
	affine_for (end = M) |i| {
		if thread_id < K {
			r1[0, 1] = 2 * x1[i, thread_id]
			s1[thread_id] = r1[0, 1]
		}
		sync()
		if thread_id < K {
			shared.0[i, K - 1 - thread_id] = s1[K - 1 - thread_id]
		}
		sync()
	}
}
"""
