"""Records index/valid pairs of real kernels, before anything is simplified.

The programs below are scheduled by tinygrad and each kernel is laid out in four ways: plain loops,
loops with upcast axes, and both for threads of a grid of three dimensions. Where a load or
store is lowered, the index and its gate are written down as plain text over bounded variables; of
an unrolled axis one lane is taken. Nothing runs. The same version gives the same file.

    python pairs.py > ../../corpus/index/kernels.txt        (in an environment with tinygrad 0.10.2)

Each pair is a block: `pair NAME`, lines `var NAME MIN..MAX`, `index EXPR`, `valid EXPR`. Expressions
are those of the corpus. All divisors are positive, and where the gate is open nothing that is
divided is negative, so `//` and `%` mean the same rounded down or cut.
"""

import os

for key in ("PARALLEL", "DEBUG", "BEAM", "NOOPT"):
    os.environ[key] = "0"

from tinygrad import Tensor
from tinygrad.codegen import lowerer
from tinygrad.codegen.kernel import Kernel, KernelOptError
from tinygrad.ops import Ops, UOp
from tinygrad.renderer import Renderer

COUNT = 500
# Of one program at most so many, and without any division at most so many.
PER_PROGRAM, PER_PROGRAM_PLAIN = 12, 3


# ---- The programs ----

def E(*shape, grad=False):
    return Tensor.empty(*shape, requires_grad=grad or None)


def convolutions():
    for size, kernel, options in [
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}),
        ((2, 4, 9, 7), (4, 4, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 4, 14, 14), (8, 4, 5, 5), {"padding": 2}),
        ((1, 3, 16, 16), (8, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((1, 4, 8, 8), (4, 4, 3, 3), {"padding": 2, "dilation": 2}),
        ((1, 4, 11, 11), (4, 4, 3, 3), {"padding": 3, "dilation": 3, "stride": 2}),
        ((1, 8, 8, 8), (8, 2, 3, 3), {"padding": 1, "groups": 4}),
        ((1, 6, 10, 10), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
        ((1, 6, 10, 10), (6, 1, 5, 5), {"padding": 2, "groups": 6, "stride": 2}),
        ((1, 4, 8, 8), (8, 4, 1, 1), {"stride": 2}),
        ((2, 3, 7, 9), (4, 3, 3, 2), {"padding": (1, 0, 2, 1)}),
        ((1, 4, 12), (6, 4, 5), {"padding": 2}),
        ((1, 4, 15), (6, 4, 3), {"padding": 2, "dilation": 2, "stride": 3}),
        ((1, 2, 5, 6, 7), (3, 2, 3, 3, 3), {"padding": 1}),
        ((1, 3, 32, 32), (16, 3, 4, 4), {"stride": 4}),
        ((1, 4, 8, 8), (4, 4, 3, 3), {"padding": 1, "stride": (2, 1)}),
        ((4, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((2, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((2, 128, 28, 28), (256, 128, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 256, 14, 14), (256, 256, 3, 3), {"padding": 2, "dilation": 2}),
        ((2, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
        ((1, 32, 28, 28), (32, 4, 3, 3), {"padding": 1, "groups": 8, "stride": 2}),
        ((1, 3, 224, 224), (192, 3, 16, 16), {"stride": 16}),
        ((2, 80, 300), (64, 80, 3), {"padding": 1, "stride": 2}),
        ((1, 16, 21, 17), (8, 16, 3, 5), {"padding": (2, 2, 1, 1), "dilation": (1, 2)}),
        ((1, 4, 13, 13), (4, 4, 2, 2), {"padding": (1, 0, 1, 0), "stride": 3}),
    ]:
        yield "conv", lambda s=size, k=kernel, o=options: E(*s).conv2d(E(*k), **o)


def convolution_gradients():
    for size, kernel, options in [
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 2, 9, 9), (2, 2, 3, 3), {"dilation": 2}),
        ((1, 4, 6, 6), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
        ((1, 2, 10), (3, 2, 4), {"stride": 3, "padding": 1}),
        ((2, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
        ((2, 16, 15, 15), (32, 16, 1, 1), {"stride": 2}),
        ((1, 4, 9, 9), (4, 4, 3, 3), {"padding": 2, "dilation": 2, "stride": 2}),
    ]:
        def one(s=size, k=kernel, o=options):
            x, w = E(*s, grad=True), E(*k, grad=True)
            return list(x.conv2d(w, **o).relu().sum().gradient(x, w))
        yield "conv-gradient", one


def transposed():
    for size, kernel, options in [
        ((1, 4, 5, 5), (4, 3, 3, 3), {}),
        ((1, 4, 5, 5), (4, 3, 3, 3), {"stride": 2}),
        ((1, 4, 5, 5), (4, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 4, 6, 6), (4, 1, 4, 4), {"stride": 2, "padding": 1, "groups": 4}),
        ((1, 3, 7), (3, 5, 3), {"stride": 3, "dilation": 2}),
        ((1, 2, 4, 4), (2, 2, 2, 2), {"stride": 2}),
        ((2, 64, 14, 14), (64, 32, 4, 4), {"stride": 2, "padding": 1}),
        ((1, 8, 9, 7), (8, 8, 3, 3), {"stride": (2, 3), "padding": (1, 0)}),
        ((1, 8, 6, 6), (8, 2, 3, 3), {"groups": 2, "dilation": 2, "padding": 1}),
    ]:
        yield "transposed", lambda s=size, k=kernel, o=options: E(*s).conv_transpose2d(E(*k), **o)


def pools():
    for size, options in [
        ((1, 4, 8, 8), {"kernel_size": (2, 2)}),
        ((1, 4, 9, 9), {"kernel_size": (3, 3), "stride": 2, "padding": 1}),
        ((1, 4, 9, 9), {"kernel_size": (3, 3), "stride": 1, "padding": 1}),
        ((1, 3, 11, 13), {"kernel_size": (3, 2), "stride": (2, 3)}),
        ((1, 3, 12, 12), {"kernel_size": (3, 3), "dilation": 2}),
        ((1, 3, 10, 10), {"kernel_size": (3, 3), "stride": 2, "ceil_mode": True}),
        ((1, 3, 14), {"kernel_size": (5,), "stride": 3, "padding": 2}),
        ((2, 64, 112, 112), {"kernel_size": (3, 3), "stride": 2, "padding": 1}),
        ((2, 32, 28, 28), {"kernel_size": (2, 2)}),
        ((1, 8, 7, 7), {"kernel_size": (7, 7)}),
        ((1, 8, 13, 13), {"kernel_size": (5, 5), "stride": 1, "padding": 2}),
        ((1, 3, 9, 10), {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 0), "ceil_mode": True}),
    ]:
        yield "max-pool", lambda s=size, o=options: E(*s).max_pool2d(**o)
        if options.get("dilation", 1) == 1:
            yield "avg-pool", lambda s=size, o=options: E(*s).avg_pool2d(**o)

        def gradient(s=size, o=options):
            x = E(*s, grad=True)
            return x.max_pool2d(**o).sum().gradient(x)[0]
        yield "pool-gradient", gradient
    yield "unfold", lambda: E(2, 3, 10, 10)._pool((3, 3), 2, 1).permute(0, 2, 3, 1, 4, 5).contiguous()
    yield "unfold", lambda: E(2, 3, 11)._pool((4,), 1, 2).permute(0, 1, 3, 2).contiguous()
    yield "im2col", lambda: (E(1, 3, 8, 8).pad((1, 1, 1, 1))._pool((3, 3)).permute(0, 2, 3, 1, 4, 5)
                             .reshape(64, 27).dot(E(27, 16)))


def pads():
    for mode in ("reflect", "replicate", "circular"):
        yield f"pad-{mode}", lambda m=mode: E(2, 3, 6, 5).pad((2, 1, 3, 2), mode=m)
        yield f"pad-{mode}", lambda m=mode: E(1, 2, 7).pad((3, 3), mode=m) + 1
        yield f"pad-{mode}", lambda m=mode: E(1, 3, 6, 6).pad((1, 1, 1, 1), mode=m).conv2d(E(4, 3, 3, 3))
    yield "pad", lambda: E(5, 7).pad((1, 2, 3, 4)).reshape(4, 30).permute(1, 0) + 1
    yield "pad", lambda: E(5, 7).pad((1, 2, 3, 4)).reshape(6, 20).contiguous()
    yield "pad", lambda: E(4, 6).pad((0, 2, 0, 1)).reshape(40).pad((3, 5)).reshape(6, 8) * 2
    yield "pad", lambda: E(3, 4).pad((1, 1, 1, 1)).pad((1, 1, 1, 1), value=2.0) + 1
    yield "pad", lambda: E(3, 8, 8).pad((-1, 2, 2, -3)).contiguous()
    yield "pad", lambda: (E(6, 6).pad((0, 0, 1, 1)).reshape(48).shrink(((4, 40),)).reshape(4, 9) + 1)


def rolls():
    yield "roll", lambda: E(4, 6).roll(1, 0) + 1
    yield "roll", lambda: E(4, 6).roll((1, -2), (0, 1)) + 1
    yield "roll", lambda: E(3, 5, 7).roll((2, 1), (2, 0)).contiguous()
    yield "roll", lambda: E(12).roll(5, 0).reshape(3, 4) + 1
    yield "roll", lambda: E(3, 4).roll(2, 1).reshape(2, 6).roll(1, 1) + 1
    yield "roll", lambda: E(2, 8, 8).roll((3, 3), (1, 2)).max_pool2d((2, 2))
    yield "roll", lambda: E(1, 2, 8, 8).roll((-1, 1), (2, 3)).conv2d(E(2, 2, 3, 3), padding=1)
    yield "roll", lambda: E(30).roll(7, 0).reshape(5, 6).contiguous()
    yield "swin", lambda: (E(1, 8, 8, 6).roll((-2, -2), (1, 2)).reshape(1, 2, 4, 2, 4, 6)
                           .permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 6).contiguous())
    yield "swin", lambda: (E(4, 16, 6).reshape(1, 2, 2, 4, 4, 6).permute(0, 1, 3, 2, 4, 5)
                           .reshape(1, 8, 8, 6).roll((2, 2), (1, 2)) + 1)


def attention():
    def heads(x, b, t, h, d):
        return x.reshape(b, t, h, d).permute(0, 2, 1, 3)

    def block(b=2, t=6, h=3, d=4, causal=True):
        qkv = E(b, t, 3 * h * d)
        q, k, v = [heads(x, b, t, h, d) for x in qkv.chunk(3, dim=-1)]
        out = q.scaled_dot_product_attention(k, v, is_causal=causal)
        return out.permute(0, 2, 1, 3).reshape(b, t, h * d).dot(E(h * d, h * d))
    yield "attention", lambda: block()
    yield "attention", lambda: block(causal=False)
    yield "attention", lambda: block(1, 9, 2, 5)
    yield "attention", lambda: block(2, 64, 8, 32)

    def gradient(b=2, t=6, h=3, d=4):
        qkv = E(b, t, 3 * h * d, grad=True)
        q, k, v = [heads(x, b, t, h, d) for x in qkv.chunk(3, dim=-1)]
        out = q.scaled_dot_product_attention(k, v, is_causal=True).permute(0, 2, 1, 3)
        return out.reshape(b, t, h * d).sum().gradient(qkv)[0]
    yield "attention-gradient", gradient

    def fused(b=2, t=10, h=2, d=4):
        q, k, v = E(b, t, h, 3, d).permute(3, 0, 2, 1, 4).split(1)
        return q[0].matmul(k[0].transpose(-2, -1)).softmax(-1).matmul(v[0])
    yield "attention", fused

    def sliding(b=1, t=12, h=2, d=4, w=3):
        q, k = E(b, h, t, d), E(b, h, t, d)
        near = k.pad((None, None, (w - 1, 0), None)).permute(0, 1, 3, 2)._pool((w,)).permute(0, 1, 3, 4, 2)
        return q.unsqueeze(-2).mul(near).sum(-1).softmax(-1)
    yield "sliding", sliding

    def blocks(b=1, t=16, h=2, d=4, size=4):
        q, k = E(b, t, h * d), E(b, t, h * d)
        split = lambda x: x.reshape(b, t // size, size, h, d).permute(0, 1, 3, 2, 4)
        keys = split(k)
        before = keys.pad((None, (1, 0), None, None, None))[:, :-1]
        return split(q).matmul(keys.cat(before, dim=3).transpose(-2, -1))
    yield "blocks", blocks

    def memory(b=2, t=5, past=3, h=2, d=4):
        keys = heads(E(b, past, h * d).cat(E(b, t, h * d), dim=1), b, t + past, h, d)
        return heads(E(b, t, h * d), b, t, h, d).matmul(keys.transpose(-2, -1))
    yield "attention", memory

    def masked(b=1, t=5, h=2, d=4):
        q, k, v = [heads(E(b, t, h * d), b, t, h, d) for _ in range(3)]
        mask = Tensor.full((1, 1, t, t), float("-inf")).triu(1)
        return q.scaled_dot_product_attention(k, v, attn_mask=mask)
    yield "attention-mask", masked

    def rotary(b=1, t=6, h=2, d=8):
        x, cos, sin = E(b, t, h, d), E(1, t, 1, d), E(1, t, 1, d)
        turned = Tensor.cat(-x[..., d // 2:], x[..., : d // 2], dim=-1)
        return (x * cos + turned * sin).permute(0, 2, 1, 3).contiguous()
    yield "rotary", rotary

    def rotary_pairs(b=1, t=6, h=2, d=8):
        x, c, s = E(b, t, h, d), E(1, t, 1, d // 2, 1), E(1, t, 1, d // 2, 1)
        x = x.reshape(b, t, h, d // 2, 2)
        even, odd = x[..., 0:1], x[..., 1:2]
        return (even * c - odd * s).cat(even * s + odd * c, dim=-1).flatten(3)
    yield "rotary", rotary_pairs

    def cache(b=1, t=12, h=2, d=4, past=7):
        kv, new = E(2, b, t, h, d), E(b, 1, h, d)
        keys = kv[0, :, :past].cat(new, dim=1)
        return E(b, 1, h, d).permute(0, 2, 1, 3).matmul(keys.permute(0, 2, 3, 1)).softmax(-1)
    yield "cache", cache

    def grouped(b=1, t=5, h=4, kv=2, d=4):
        k = E(b, t, kv, d)
        k = k.repeat((1, 1, 1, h // kv)).reshape(b, t, h, d).permute(0, 2, 3, 1)
        return E(b, t, h, d).permute(0, 2, 1, 3).matmul(k)
    yield "grouped-heads", grouped

    def relative(t=6, h=2):
        scores = E(h, t, 2 * t - 1)
        return scores.pad((0, 1)).reshape(h, 2 * t * t)[:, : t * (2 * t - 1)].reshape(h, t, 2 * t - 1)[..., t - 1:] + 1
    yield "relative", relative

    def relative_skew(t=8):
        x = E(2, t, t)
        return x.pad((1, 0)).reshape(2, t + 1, t)[:, 1:].contiguous()
    yield "relative", relative_skew

    def window(t=12, w=4):
        x = E(2, t, 3)
        return x.pad((None, (w // 2, w // 2), None)).permute(0, 2, 1)._pool((2 * w,), w).permute(0, 2, 3, 1).contiguous()
    yield "window", window


def cats():
    yield "cat", lambda: E(2, 3, 4).cat(E(2, 5, 4), E(2, 1, 4), dim=1) + 1
    yield "cat", lambda: E(3, 4).cat(E(3, 4), dim=1).reshape(4, 6) + 1
    yield "cat", lambda: E(3, 4).cat(E(2, 4), dim=0).permute(1, 0).reshape(5, 4) + 1
    yield "cat", lambda: E(2, 4, 4).cat(E(2, 4, 4), dim=-1).reshape(2, 2, 2, 8).permute(0, 2, 1, 3).contiguous()
    yield "stack", lambda: E(3, 4).stack(E(3, 4), E(3, 4), dim=1) + 1
    yield "stack", lambda: E(3, 4).stack(E(3, 4), dim=-1).reshape(24) + 1
    yield "stack", lambda: E(3, 4).stack(E(3, 4), dim=-1).reshape(6, 4).permute(1, 0).contiguous()
    yield "interleave", lambda: E(2, 5).stack(E(2, 5), E(2, 5), dim=2).reshape(2, 15).reshape(6, 5) + 1
    yield "flatten-cat", lambda: E(3, 5).flatten().cat(E(7), E(2, 2).flatten()) + 1
    yield "split", lambda: [x + 1 for x in E(3, 12).reshape(6, 6).split([1, 2, 3], dim=1)]


def flips_and_slices():
    yield "flip", lambda: E(2, 3).flip(1).reshape(3, 2).flip(0) + 1
    yield "flip", lambda: E(4, 6).flip((0, 1)).reshape(3, 8) + 1
    yield "flip", lambda: E(3, 4, 5).flip(2).reshape(12, 5).permute(1, 0).reshape(4, 15) + 1
    yield "flip", lambda: E(4, 5).pad((1, 1, 0, 0)).flip(1).reshape(2, 14) + 1
    yield "flip", lambda: E(1, 3, 6, 6).flip(3).conv2d(E(2, 3, 3, 3), padding=1)
    yield "slice", lambda: E(10, 9)[1:9:2, ::3] + 1
    yield "slice", lambda: E(10, 9)[::-2, 7:1:-3] + 1
    yield "slice", lambda: E(4, 12)[:, ::5].reshape(6, 2) + 1
    yield "slice", lambda: E(4, 6, 8)[1:3, ::-1, 2::3].reshape(4, 6) + 1
    yield "slice", lambda: E(6, 10).reshape(60)[3:53:7] + 1
    yield "slice", lambda: E(5, 11)[:, 1:10:4].permute(1, 0).reshape(5, 3) + 1

    def gradient():
        x = E(10, 9, grad=True)
        return x[1:9:3, ::2].square().sum().gradient(x)[0]
    yield "slice-gradient", gradient

    def gradient_reverse():
        x = E(8, 7, grad=True)
        return x[::-3, 1:6].reshape(15)[::2].sum().gradient(x)[0] * x
    yield "slice-gradient", gradient_reverse

    def setitem():
        x = E(8, 6).contiguous()
        return x.pad((1, 0))[:, ::2].cat(E(8, 2), dim=1) + 1
    yield "slice", setitem


def gathers():
    index = lambda *shape: Tensor.empty(*shape, dtype="int32")
    yield "gather", lambda: E(4, 6).gather(1, index(4, 3))
    yield "gather", lambda: E(5, 3, 4).gather(0, index(2, 3, 2))
    yield "embedding", lambda: E(10, 6)[index(2, 3)]
    yield "embedding", lambda: E(10, 6)[index(3, 1), index(1, 4)]
    yield "one-hot", lambda: index(3, 4).one_hot(7) + 1
    yield "scatter", lambda: E(4, 6).scatter(1, index(4, 3), E(4, 3))
    yield "argmax", lambda: E(4, 9).argmax(1)
    yield "argmax", lambda: E(3, 4, 5).argmax(0)
    yield "cross-entropy", lambda: E(4, 7).sparse_categorical_crossentropy(index(4))


def upsampling():
    yield "repeat", lambda: E(3, 4).repeat((2, 3)) + 1
    yield "repeat", lambda: E(2, 3, 2).repeat((1, 2, 3)).reshape(6, 12) + 1
    yield "interleave", lambda: E(3, 4).repeat_interleave(3, 1) + 1
    yield "interleave", lambda: E(3, 4).repeat_interleave(2, 0).reshape(4, 6) + 1
    yield "upsample", lambda: (E(1, 2, 5, 5).reshape(1, 2, 5, 1, 5, 1).expand(1, 2, 5, 2, 5, 3)
                               .reshape(1, 2, 10, 15).conv2d(E(3, 2, 3, 3), padding=1))
    yield "upsample", lambda: E(1, 3, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3).pad((1, 1, 1, 1)) + 1
    yield "interpolate", lambda: E(1, 2, 5, 7).interpolate((10, 3), mode="nearest")
    yield "interpolate", lambda: E(1, 2, 5, 7).interpolate((8, 9), mode="linear")
    yield "pixel-shuffle", lambda: (E(1, 12, 4, 5).reshape(1, 3, 2, 2, 4, 5).permute(0, 1, 4, 2, 5, 3)
                                    .reshape(1, 3, 8, 10).pad((1, 1, 0, 0)) + 1)
    yield "pixel-shuffle", lambda: (E(1, 3, 8, 6).reshape(1, 3, 4, 2, 3, 2).permute(0, 1, 3, 5, 2, 4)
                                    .reshape(1, 12, 12) + 1)
    yield "channel-shuffle", lambda: E(1, 12, 5).reshape(1, 3, 4, 5).permute(0, 2, 1, 3).reshape(1, 12, 5).pad((2, 2)) + 1


def ranges():
    yield "arange", lambda: Tensor.arange(12).reshape(3, 4) + E(3, 4)
    yield "arange", lambda: Tensor.arange(3, 40, 4).float() * E(10)
    yield "eye", lambda: Tensor.eye(5) + E(5, 5)
    yield "eye", lambda: (Tensor.eye(4, 6) * E(4, 6)).sum(0)
    yield "triangle", lambda: E(5, 5).tril() + 1
    yield "triangle", lambda: E(4, 7).triu(-1) + 1
    yield "cumsum", lambda: E(3, 6).cumsum(1)
    yield "cumsum", lambda: E(4, 3).cumsum(0) * 2
    yield "cumsum", lambda: E(600).cumsum(0)
    yield "cummax", lambda: E(2, 7).cummax(1)
    yield "diagonal", lambda: E(6, 6).flatten().pad((0, 6)).reshape(6, 7)[:, 0] + 1
    yield "diagonal", lambda: E(5).reshape(5, 1).pad((0, 5)).reshape(30)[:25].reshape(5, 5) + 1
    yield "toeplitz", lambda: E(9).repeat((5,))[:40].reshape(5, 8)[:, :5] + 1
    yield "linspace", lambda: Tensor.linspace(0, 1, 9) + E(9)


def networks():
    yield "patches", lambda: (E(1, 3, 12, 12).reshape(1, 3, 3, 4, 3, 4).permute(0, 2, 4, 1, 3, 5)
                              .reshape(9, 48).dot(E(48, 8)))
    yield "layer-norm", lambda: E(3, 5, 8).transpose(1, 2).reshape(3, 4, 10).layernorm()
    yield "matmul", lambda: E(6, 4).pad((0, 1, 0, 2)).reshape(5, 8).permute(1, 0).dot(E(5, 7).flip(0))
    yield "matmul", lambda: E(2, 6, 8).reshape(3, 4, 8).permute(0, 2, 1).matmul(E(3, 4, 5).pad((1, 1)))
    yield "einsum", lambda: Tensor.einsum("bhid,bhjd->bijh", E(2, 3, 4, 5), E(2, 3, 6, 5))
    yield "squeeze-excite", lambda: E(1, 4, 6, 6).pad((1, 1, 1, 1)) * E(1, 4, 6, 6).mean((2, 3), keepdim=True)
    yield "residual", lambda: (E(1, 4, 8, 8).pad((1, 1, 1, 1))._pool((3, 3), 2).max((-1, -2))
                               + E(1, 4, 8, 8)[:, :, ::2, ::2])
    yield "space-to-depth", lambda: (E(1, 2, 8, 8).pad((1, 1, 1, 1)).reshape(1, 2, 5, 2, 5, 2)
                                     .permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 5, 5).conv2d(E(3, 8, 2, 2)))
    yield "frames", lambda: E(2, 30).pad((4, 4))._pool((8,), 4).mul(E(8)).sum(-1)
    yield "fold", lambda: (E(1, 3, 4).permute(0, 2, 1).pad((0, 4)).reshape(1, 28).shrink(((0, 1), (0, 24)))
                           .reshape(1, 4, 6).sum(1))
    yield "batch-norm", lambda: E(2, 4, 6, 6).batchnorm(E(4), E(4), E(4), E(4)).max_pool2d((3, 3), 2)
    yield "conv-pool", lambda: E(1, 3, 10, 10).conv2d(E(4, 3, 3, 3), padding=1).relu().max_pool2d()
    yield "mixed", lambda: (E(1, 4, 6, 6).pad((1, 1, 1, 1)).reshape(1, 2, 2, 64).permute(0, 2, 1, 3)
                            .reshape(1, 4, 8, 8).conv2d(E(4, 4, 3, 3)))
    yield "mixed", lambda: E(4, 9).reshape(6, 6).pad((1, 1, 1, 1)).reshape(4, 16).flip(1).reshape(8, 8).cumsum(1)
    yield "mixed", lambda: E(1, 2, 6, 6).roll(1, 3).max_pool2d((3, 3), 1, padding=1).flip(2)


SUITES = [convolutions, attention, pools, pads, rolls, transposed, convolution_gradients, cats,
          flips_and_slices, gathers, upsampling, ranges, networks]


# ---- Recording ----

class Loops(Renderer):
    has_local = has_shared = supports_float4 = False
    global_max = None


class Threads(Renderer):
    has_local = has_shared = True


LAYOUTS = [(Loops(), False), (Threads(), False), (Loops(), True), (Threads(), True)]


def kernels(program):
    out = program()
    out = out if isinstance(out, list) else [out]
    for item in out[0].schedule(*out[1:]):
        if item.ast.op is Ops.SINK:
            yield item.ast


def laid_out(ast):
    """The kernel in each layout, without repetitions."""
    for renderer, optimised in LAYOUTS:
        kernel = Kernel(ast, opts=renderer).required_optimizations()
        if optimised:
            try:
                kernel.hand_coded_optimizations()
            except KernelOptError:
                continue
        yield kernel.get_optimized_ast(), renderer


def recorded(ast, renderer):
    """Index and gate of each load and store of one kernel, as lowered."""
    context = lowerer.get_index(ast, renderer)
    for node in ast.toposort:
        if node.op not in (Ops.LOAD, Ops.STORE) or node.src[0].op is not Ops.DEFINE_GLOBAL:
            continue
        yield node.st_arg.to_indexed_uops(context.idxs)


# ---- Text ----

BINDING = {Ops.CMPLT: 1, Ops.AND: 2, Ops.ADD: 3, Ops.MUL: 4, Ops.IDIV: 4, Ops.MOD: 4}
SYMBOL = {Ops.CMPLT: "<", Ops.AND: "&", Ops.ADD: "+", Ops.MUL: "*", Ops.IDIV: "//", Ops.MOD: "%"}


def name_of(uop):
    return f"r{uop.arg}" if uop.op is Ops.RANGE else uop.arg[0]


def text(uop, variables, outer=0):
    """The expression; a product of truths is `&`, `(x < c) != true` is `!(x < c)`."""
    op = uop.op
    if op in (Ops.RANGE, Ops.SPECIAL):
        variables[name_of(uop)] = (uop.vmin, uop.vmax)
        return name_of(uop)
    if op is Ops.UNROLL:
        lanes = uop.src[0].arg if isinstance(uop.src[0].arg, tuple) else (uop.src[0].arg,)
        return str(lanes[len(lanes) // 2])
    if op is Ops.CONST:
        return str(uop.arg).lower()
    if op is Ops.CMPNE:
        assert uop.src[1].op is Ops.CONST and uop.src[1].arg is True, uop
        return "!(" + text(uop.src[0], variables) + ")"
    if op is Ops.MUL and uop.dtype.name == "bool":
        op = Ops.AND
    binding = BINDING[op]
    left, right = (text(src, variables, binding + side) for side, src in enumerate(uop.src))
    whole = f"{left} {SYMBOL[op]} {right}"
    return f"({whole})" if binding < outer else whole


def uses(uop, *ops):
    return any(node.op in ops for node in uop.toposort)


def block(index, valid):
    variables = {}
    lines = [f"index {text(index, variables)}", f"valid {text(valid, variables)}"]
    names = sorted(variables, key=lambda name: (name[0] != "g", name[0] != "l", name[0], int(name.lstrip("glridx"))))
    return "\n".join([f"var {name} {variables[name][0]}..{variables[name][1]}" for name in names] + lines)


def rounds():
    """(name, block) of all programs, suites taking turns, so that a prefix is a fair sample."""
    lists, numbers = [], {}
    for suite in SUITES:
        programs = []
        for label, program in suite():
            numbers[label] = numbers.get(label, 0) + 1
            programs.append((f"{label}-{numbers[label]}", program))
        lists.append(programs)
    for turn in range(max(map(len, lists))):
        for programs in lists:
            if turn < len(programs):
                yield programs[turn]


def pairs():
    seen = set()
    for name, program in rounds():
        number = plain = 0
        places = ((index, valid) for ast in kernels(program) for laid, renderer in laid_out(ast)
                  for index, valid in recorded(laid, renderer))
        for index, valid in places:
            divides = any(uses(uop, Ops.IDIV, Ops.MOD) for uop in (index, valid))
            if not divides and (not uses(valid, Ops.CMPLT) or plain == PER_PROGRAM_PLAIN):
                continue
            if not any(uses(uop, Ops.RANGE, Ops.SPECIAL) for uop in (index, valid)):
                continue
            body = block(index, valid)
            if body in seen or number == PER_PROGRAM:
                continue
            seen.add(body)
            number += 1
            plain += not divides
            yield f"pair {name}-{number}\n{body}\n"


if __name__ == "__main__":
    found = list(pairs())
    # Evenly over the whole list, so that every program counts.
    chosen = [found[i * len(found) // COUNT] for i in range(COUNT)] if COUNT < len(found) else found
    print(f"# Index and gate of {len(chosen)} of {len(found)} loads and stores in real kernels, before anything is")
    print("# simplified. Made by oracle/upstream/pairs.py with tinygrad 0.10.2.\n")
    print("\n".join(chosen), end="")
