"""Training steps of the benchmark's models, in PyTorch (eager) and in tinygrad (TinyJit), on one core.

Reads lines `LIBRARY MODEL COUNT`; answers each with the seconds of COUNT steps, or `none WHY`."""

import os
import sys
import time

os.environ.update(CPU="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", JIT="1")


def torch_models():
    import torch
    from torch import nn
    import torch.nn.functional as F
    torch.set_num_threads(1)

    class Attention(nn.Module):
        def __init__(self, embed, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(embed, 3 * embed), nn.Linear(embed, embed)

        def forward(self, x):
            n, t, e = x.shape
            q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(n, t, e))

    class Block(nn.Module):
        def __init__(self, embed, heads):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
            self.attn = Attention(embed, heads)
            self.fc, self.proj = nn.Linear(embed, 4 * embed), nn.Linear(4 * embed, embed)

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, characters=90, context=32, embed=64):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(characters, embed), nn.Embedding(context, embed)
            self.blocks = nn.Sequential(Block(embed, 4), Block(embed, 4))
            self.ln, self.head = nn.LayerNorm(embed), nn.Linear(embed, characters, bias=False)

        def forward(self, x):
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
            return self.head(self.ln(self.blocks(x))).flatten(0, 1)

    def step(net, optimizer, x, y):
        def run():
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()
        return run

    def digits():
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 10))
        return step(net, torch.optim.Adam(net.parameters(), 0.01), torch.randn(128, 1, 16, 16),
                    torch.randint(0, 10, (128,)))

    def mnist():
        net = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(576, 10))
        return step(net, torch.optim.Adam(net.parameters(), 0.001), torch.randn(128, 1, 28, 28),
                    torch.randint(0, 10, (128,)))

    def gpt():
        net = Gpt()
        return step(net, torch.optim.AdamW(net.parameters(), 3e-3), torch.randint(0, 90, (16, 32)),
                    torch.randint(0, 90, (512,)))

    return {"digits": digits, "mnist": mnist, "gpt": gpt}


def tinygrad_models():
    from tinygrad import Tensor, TinyJit, dtypes, nn
    Tensor.training = True

    def step(forward, optimizer, x, y):
        @TinyJit
        def run(x, y):
            optimizer.zero_grad()
            loss = forward(x).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
            return loss.realize()
        return lambda: run(x, y).item()

    def train(layers, optimizer, x, y):
        net = lambda x: x.sequential(layers)
        return step(net, optimizer(nn.state.get_parameters(layers)), x.realize(), y.realize())

    def digits():
        layers = [
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm(8), Tensor.relu, Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm(16), Tensor.relu, Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(256, 10)]
        return train(layers, lambda p: nn.optim.Adam(p, lr=0.01), Tensor.randn(128, 1, 16, 16),
                     Tensor.randint(128, high=10))

    def mnist():
        layers = [
            nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32), Tensor.max_pool2d,
            nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(576, 10)]
        return train(layers, lambda p: nn.optim.Adam(p, lr=0.001), Tensor.randn(128, 1, 28, 28),
                     Tensor.randint(128, high=10))

    class Block:
        def __init__(self, e):
            self.ln1, self.ln2 = nn.LayerNorm(e), nn.LayerNorm(e)
            self.qkv, self.out = nn.Linear(e, 3 * e), nn.Linear(e, e)
            self.fc, self.proj = nn.Linear(e, 4 * e), nn.Linear(4 * e, e)

        def __call__(self, x):
            n, t, e = x.shape
            q, k, v = (y.reshape(n, t, 4, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
            y = q.scaled_dot_product_attention(k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, e))
            return x + self.proj(self.fc(self.ln2(x)).gelu())

    class Gpt:
        def __init__(self, characters=90, context=32, e=64):
            self.wte, self.wpe = nn.Embedding(characters, e), nn.Embedding(context, e)
            self.blocks = [Block(e), Block(e)]
            self.ln, self.head = nn.LayerNorm(e), nn.Linear(e, characters, bias=False)

        def __call__(self, x):
            x = self.wte(x) + self.wpe(Tensor.arange(x.shape[1]))
            return self.head(self.ln(x.sequential(self.blocks))).flatten(0, 1)

    def gpt():
        net = Gpt()
        optimizer = nn.optim.AdamW(nn.state.get_parameters(net), lr=3e-3)
        return step(net, optimizer, Tensor.randint(16, 32, high=90).realize(),
                    Tensor.randint(512, high=90).realize())

    return {"digits": digits, "mnist": mnist, "gpt": gpt}


LIBRARIES = {"torch": torch_models, "tinygrad": tinygrad_models}


def main():
    models, steps = {}, {}
    for line in sys.stdin:
        library, model, count = line.split()
        try:
            if library not in models:
                models[library] = LIBRARIES[library]()
            if (library, model) not in steps:
                steps[library, model] = models[library][model]()
                # TinyJit captures the second call.
                for _ in range(3):
                    steps[library, model]()
            start = time.perf_counter()
            for _ in range(int(count)):
                steps[library, model]()
            print(time.perf_counter() - start, flush=True)
        except Exception as error:
            print("none", type(error).__name__, str(error).replace("\n", " "), flush=True)


main()
