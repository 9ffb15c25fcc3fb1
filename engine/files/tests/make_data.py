"""Writes the files in `data` with the libraries that the formats come from.

Needs numpy, safetensors, torch and gguf:  python make_data.py

`expected.txt` has a line for each tensor: file, name, dtype, shape, and the bytes in hexadecimal, or
their FNV-1a hash where there are more than 64.
"""
import collections
import pathlib

import gguf
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

DATA = pathlib.Path(__file__).parent / "data"
NAMES = {"bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32",
         "uint32": "u32", "int64": "i64", "uint64": "u64", "float16": "f16", "bfloat16": "bf16",
         "float32": "f32", "float64": "f64"}
lines = []


def expect(file, name, array):
    if isinstance(array, torch.Tensor):
        dtype, shape = str(array.dtype).removeprefix("torch."), list(array.shape)
        array = array.detach().contiguous()
        data = array.reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""
    else:
        dtype, shape = array.dtype.name, list(array.shape)
        data = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
    text = data.hex()
    if 64 < len(data):
        hash = 0xcbf29ce484222325
        for byte in data:
            hash = (hash ^ byte) * 0x100000001b3 % 2**64
        text = f"fnv:{hash:016x}"
    lines.append(f"{file}|{name}|{NAMES[dtype]}|{shape}|{text}")


def tensors():
    torch.manual_seed(1)
    result = collections.OrderedDict()
    for name in NAMES:
        dtype = getattr(torch, name)
        if dtype.is_floating_point:
            result[name] = torch.tensor([[0.5, -1.0, float("inf")], [-0.0, 3.25, 1e-3]]).to(dtype)
        else:
            result[name] = torch.tensor([[0, 1, 2], [3, 100, 1]]).to(dtype)
    result["scalar"] = torch.tensor(2.5)
    result["empty"] = torch.zeros(0, 3)
    return result


DATA.mkdir(exist_ok=True)
rng = np.random.default_rng(1)

state = tensors()
safetensors.torch.save_file(state, DATA / "dtypes.safetensors", {"format": "pt"})
for name, tensor in state.items():
    expect("dtypes.safetensors", name, tensor)

for name in ["bool", "int8", "uint16", "float16", "float64"]:
    for order in "<>":
        for layout in "CF":
            file = f"{name}_{'le' if order == '<' else 'be'}_{layout}.npy"
            array = np.arange(6).reshape(1, 2, 3).astype(np.dtype(name).newbyteorder(order), order=layout)
            np.save(DATA / file, np.array(array, order=layout))
            expect(file, "", array)
np.save(DATA / "scalar.npy", np.float32(1.5))
expect("scalar.npy", "", np.array(np.float32(1.5)))
np.save(DATA / "objects.npy", np.array([1, "a"], dtype=object))
np.save(DATA / "records.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))
arrays = {"a": np.arange(300, dtype=np.int32).reshape(3, 100), "b/c": np.float64(1.0), "e": np.zeros((2, 0))}
np.savez_compressed(DATA / "compressed.npz", **arrays)
np.savez(DATA / "stored.npz", a=np.arange(4, dtype=np.uint8), f=np.asfortranarray(np.eye(2, 3)))
for name, array in arrays.items():
    expect("compressed.npz", name, np.asarray(array))
expect("stored.npz", "a", np.arange(4, dtype=np.uint8))
expect("stored.npz", "f", np.eye(2, 3))

base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
views = {
    "base": base, "transposed": base.t(), "cut": base[1:3, ::2], "same": base,
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3), "flat": base.reshape(-1)[7:],
    "parameter": torch.nn.Parameter(torch.ones(2)),
}
torch.save(views, DATA / "views.pt")
for name, tensor in views.items():
    expect("views.pt", name, tensor)
some = {name: state[name] for name in ["bool", "int8", "uint8", "int16", "int32", "int64"]}
torch.save(some, DATA / "dtypes1.pt")
for name, tensor in some.items():
    expect("dtypes1.pt", name, tensor)
some = {name: state[name] for name in ["uint16", "uint32", "uint64", "float16", "bfloat16", "float64", "scalar", "empty"]}
torch.save(some, DATA / "dtypes2.pt", pickle_protocol=4)
for name, tensor in some.items():
    expect("dtypes2.pt", name, tensor)
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 2)).sum().backward()
optimizer.step()
torch.save({"model": model.state_dict(), "epoch": 3, "loss": 0.5, "note": "x",
            "sizes": [torch.Size([2, 3])], "list": [torch.ones(1), None, (torch.zeros(1),)]}, DATA / "model.pt")
for name, tensor in model.state_dict().items():
    expect("model.pt", f"model.{name}", tensor)
expect("model.pt", "list.0", torch.ones(1))
expect("model.pt", "list.2.0", torch.zeros(1))
# Where a name has 21 letters, a header is where the directory begins for a reader that ignores its zip64 end.
torch.save({"w": torch.tensor([1.0, -2.0])}, DATA / "a_model_of_21_letters.pt")
expect("a_model_of_21_letters.pt", "w", torch.tensor([1.0, -2.0]))
torch.save(torch.nn.Linear(1, 1), DATA / "module.pt")
torch.save({"c": torch.zeros(1, dtype=torch.complex64)}, DATA / "complex.pt")
# The imaginary part of a conjugate has the negative bit.
negative = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
torch.save({"n": negative}, DATA / "negative.pt")
expect("negative.pt", "n", negative.resolve_neg())


def write_gguf(file, arrays, quantized, alignment=None):
    writer = gguf.GGUFWriter(DATA / file, "test")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_int32("i32", -70000)
    writer.add_float32("f32", 0.5)
    writer.add_bool("bool", True)
    writer.add_string("text", "Zürich")
    writer.add_array("array", ["a", "bc"])
    writer.add_array("nested", [1, 2, 3])
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -2**40)
    writer.add_float64("f64", 0.1)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
        expect(file, name, array)
    for name, kind in quantized.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (2, size), dtype=np.uint8)
        for offset in {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.get(name, [0]):
            raw[:, offset:offset + 2] = rng.normal(size=2).astype(np.float16).reshape(2, 1).view(np.uint8)
        writer.add_tensor(name, raw, raw_dtype=kind)
        expect(file, name, gguf.quants.dequantize(raw, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


plain = {name: np.arange(6).reshape(2, 3).astype(name)
         for name in ["float32", "float16", "int8", "int16", "int32", "int64", "float64"]}
T = gguf.GGMLQuantizationType
write_gguf("plain.gguf", plain, {}, 64)
write_gguf("small_blocks.gguf", {}, {k: T[k] for k in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]})
write_gguf("large_blocks.gguf", {}, {k: T[k] for k in ["Q4_K", "Q5_K", "Q6_K"]})
(DATA / "expected.txt").write_text("\n".join(lines) + "\n")
