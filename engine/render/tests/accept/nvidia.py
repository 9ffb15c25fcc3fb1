"""NVRTC and ptxas of NVIDIA's wheels (nvidia-cuda-nvrtc-cu12, nvidia-cuda-nvcc-cu12,
nvidia-cuda-runtime-cu12); no GPU is needed.

nvidia.py find nvrtc|ptxas    prints where it is; fails if it is not there
nvidia.py nvrtc ARCH FILE     compiles CUDA to PTX; prints the log; fails if NVRTC does
"""
import ctypes
import glob
import os
import site
import sys


def find(pattern):
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    found = [path for place in folders for path in glob.glob(os.path.join(place, "nvidia", pattern))]
    if not found:
        sys.exit(f"no nvidia/{pattern} in {', '.join(folders)}")
    return found[0]


def compile_cuda(arch, path):
    library = ctypes.CDLL(find("cuda_nvrtc/lib/libnvrtc.so.12"))
    include = find("cuda_runtime/include")
    program = ctypes.c_void_p()
    with open(path, "rb") as file:
        text = file.read()
    code = library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture=compute_{arch}", f"-I{include}"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = code or library.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    print(log.value.decode())
    sys.exit(result)


if sys.argv[1] == "find":
    print(find({"nvrtc": "cuda_nvrtc/lib/libnvrtc.so.12", "ptxas": "cuda_nvcc/bin/ptxas"}[sys.argv[2]]))
else:
    compile_cuda(sys.argv[2], sys.argv[3])
