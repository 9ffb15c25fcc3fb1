//! What the device that will run a kernel has. Passes bring the kernel down to it.

use gradiff_graph::{DType, Op, Thresholds};

/// Functions over a type.
pub type Functions = &'static [(Op, DType)];

/// The functions that can be written as sums and products, which is done where they are lacked.
pub const FUNCTIONS: Functions = &[
    (Op::Exp2, DType::F32),
    (Op::Log2, DType::F32),
    (Op::Pow, DType::F32),
    (Op::Exp2, DType::F64),
    (Op::Log2, DType::F64),
    (Op::Pow, DType::F64),
    (Op::Sin, DType::F32),
    (Op::Sin, DType::F64),
];

/// Those that are faster so than lane by lane, in vectors of 32 bytes and more, and of 16 bytes:
/// sin of f32 took 3.1 ns in 64 bytes, 5.8 in 32, 18 in 16, and 6.9 by glibc's function.
const WIDE: Functions = FUNCTIONS.split_at(7).0;
const SHORT: Functions = FUNCTIONS.split_at(6).0;

/// A device as passes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Arithmetic of f16; without it f16 is computed in f32 and rounded back after each op.
    pub native_f16: bool,
    /// Arithmetic of bf16, likewise.
    pub native_bf16: bool,
    /// `x*y+z` in one op.
    pub mulacc: bool,
    /// Products that are added at once become `mulacc`: it is fast there.
    pub fma: bool,
    /// `1/x` in one op.
    pub recip: bool,
    /// Products by powers of two become shifts.
    pub shifts: bool,
    /// The functions that it has not, or not as exact as results have to be.
    pub lacks: Functions,
    /// Steps that run at once or in a row are written out; without it they are loops.
    pub unrolls: bool,
    /// Which vectors there are.
    pub vectors: Vectors,
    /// Whether memory that is read soon may be asked for early.
    pub asks_early: bool,
    /// From which sizes on kernels are made in another way.
    pub thresholds: Thresholds,
    /// How many threads of the host run a kernel at once.
    pub threads: i64,
    /// Groups of threads, if there are any.
    pub groups: Option<Groups>,
    /// Names of the [`TensorCore`](gradiff_graph::TensorCore)s, best ones first. That of tf32,
    /// which rounds f32 to 10 bits, is that of targets which are chosen for it alone.
    pub tensor_cores: &'static [&'static str],
}

/// The vectors that a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vectors {
    /// Bytes of the longest one; 0 if there are none.
    pub bytes: u32,
    /// How many of them the registers hold.
    pub registers: i64,
    /// Whether they are computed with; without it they are loaded and stored only.
    pub alu: bool,
    /// Whether they are loaded and stored at multiples of their own length only.
    pub aligned: bool,
    /// How many lanes they have at most, if they are not of f16 or bf16; bytes permitting.
    pub lanes: i64,
    /// The same of f16 and bf16; 0 if there are no vectors of these.
    pub half_lanes: i64,
    /// The functions that it has for single values only.
    pub lacks: Functions,
}

impl Vectors {
    /// How many lanes a vector of a type has at most; 0 if there is none.
    pub fn lanes_of(&self, dtype: DType) -> i64 {
        let most = match dtype {
            DType::Bool | DType::Void => return 0,
            DType::F16 | DType::BF16 => self.half_lanes,
            _ => self.lanes,
        };
        most.min(i64::from(self.bytes) / dtype.size_bytes() as i64)
    }
}

/// The groups of threads that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Most threads of a group.
    pub threads: i64,
    /// Most threads of a group in each dimension, the innermost one first.
    pub sizes: [i64; 3],
    /// Most groups in each dimension, the innermost one first.
    pub counts: [i64; 3],
    /// Bytes that the threads of a group share.
    pub local_bytes: i64,
    /// Bytes that an element takes there at least.
    pub element_bytes: i64,
}

impl Groups {
    /// A device of fewer threads, a smaller grid and less to share, drawn from a number.
    pub fn smaller(self, drawn: u64) -> Groups {
        let below = |shift: u32, most: i64, own: i64| {
            let drawn = (drawn >> shift & 0xffff) as i64;
            own.min(1 + drawn % most)
        };
        let [x, y, z] = self.sizes;
        let [a, b, c] = self.counts;
        Groups {
            threads: below(0, 64, self.threads),
            sizes: [below(8, 32, x), below(16, 16, y), below(20, 8, z)],
            counts: [below(24, 4096, a), below(28, 64, b), below(32, 16, c)],
            local_bytes: below(40, 4096, self.local_bytes),
            ..self
        }
    }
}

/// What CUDA promises of every card that is in use.
const CUDA_GROUPS: Groups = Groups {
    threads: 1024,
    sizes: [1024, 1024, 64],
    counts: [2_147_483_647, 65_535, 65_535],
    local_bytes: 48 << 10,
    element_bytes: 1,
};

/// What WebGPU, the least of them, promises of every device.
const LEAST_GROUPS: Groups = Groups {
    threads: 256,
    sizes: [256, 256, 64],
    counts: [65_535, 65_535, 65_535],
    local_bytes: 16 << 10,
    element_bytes: 1,
};

/// Of sm_80 and later.
const CUDA_CORES: &[&str] = &["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_f16"];

/// Those of CUDA, and small ones for small tensors.
const EMULATED_CORES: &[&str] =
    &["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_f16", "m4n2k2_f32", "m4n2k2_f16", "m4n2k2_bf16"];

/// A card of CUDA.
const CUDA: Target = Target {
    groups: Some(CUDA_GROUPS),
    shifts: true,
    vectors: Vectors { half_lanes: 8, ..QUADS },
    tensor_cores: CUDA_CORES,
    ..Target::PLAIN
};

/// The same in its own language, which has fewer functions: its exp2 of f32 is within 2 ulp; what
/// else the machine has is not.
const PTX: Target = Target { lacks: FUNCTIONS.split_at(1).1, ..CUDA };

/// Vectors of 16 bytes and 4 lanes, as every GPU loads them.
const QUADS: Vectors = Vectors {
    alu: false,
    aligned: true,
    bytes: 16,
    lanes: 4,
    half_lanes: 4,
    lacks: &[],
    ..ALL_VECTORS
};

/// Vectors as the compilers of CPUs have them.
const ALL_VECTORS: Vectors = Vectors {
    bytes: 64,
    registers: 32,
    alu: true,
    aligned: false,
    lanes: 64,
    half_lanes: 64,
    lacks: WIDE,
};

/// WebGPU, which has no elements of less than a word.
const WGSL: Target = Target {
    groups: Some(Groups { element_bytes: 4, ..LEAST_GROUPS }),
    shifts: true,
    lacks: FUNCTIONS,
    ..Target::PLAIN
};

/// Targets by the name of their device, language or way of running; others are plain.
const TARGETS: &[(&str, Target)] = &[
    ("plain", Target::PLAIN),
    (
        "jit",
        Target {
            vectors: Vectors {
                bytes: 16,
                registers: 16,
                half_lanes: 0,
                lacks: SHORT,
                ..ALL_VECTORS
            },
            ..Target::PLAIN
        },
    ),
    ("loops", Target { unrolls: false, ..Target::PLAIN }),
    ("vectors", Target { fma: true, vectors: ALL_VECTORS, ..Target::PLAIN }),
    (
        "groups",
        Target {
            groups: Some(CUDA_GROUPS),
            shifts: true,
            lacks: FUNCTIONS,
            vectors: Vectors { bytes: 16, ..ALL_VECTORS },
            tensor_cores: EMULATED_CORES,
            ..Target::PLAIN
        },
    ),
    ("cuda", CUDA),
    // Cards before sm_80.
    ("cuda-old", Target { tensor_cores: &[], ..CUDA }),
    ("cuda-tf32", Target { tensor_cores: &["m16n8k8_tf32"], ..CUDA }),
    ("ptx", PTX),
    ("ptx-tf32", Target { tensor_cores: &["m16n8k8_tf32"], ..PTX }),
    (
        "opencl",
        Target {
            groups: Some(LEAST_GROUPS),
            shifts: true,
            vectors: Vectors { alu: true, lanes: 16, half_lanes: 0, ..QUADS },
            ..Target::PLAIN
        },
    ),
    ("metal", Target { groups: Some(LEAST_GROUPS), shifts: true, vectors: QUADS, ..Target::PLAIN }),
    ("wgsl", WGSL),
    ("wgsl-core", WGSL),
    ("wgpu", WGSL),
    ("llvm", Target { fma: true, vectors: ALL_VECTORS, ..Target::PLAIN }),
];

impl Target {
    /// A plain CPU: 16-bit floats are only stored, all other ops are there; no vectors.
    pub const PLAIN: Target = Target {
        native_f16: false,
        native_bf16: false,
        mulacc: true,
        fma: false,
        recip: true,
        shifts: false,
        unrolls: true,
        vectors: Vectors {
            bytes: 0,
            registers: 0,
            alu: false,
            aligned: false,
            lanes: 0,
            half_lanes: 0,
            lacks: &[],
        },
        lacks: &[],
        asks_early: false,
        thresholds: Thresholds::USUAL,
        threads: 1,
        groups: None,
        tensor_cores: &[],
    };

    /// The target of a device, language or way of running; plain where there is none of this name.
    pub fn of(name: &str) -> Target {
        Target::named(name).unwrap_or_default()
    }

    /// The target of this name; `c` is this machine.
    pub fn named(name: &str) -> Option<Target> {
        if name == "c" {
            return Some(Target::native());
        }
        TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once("c").chain(TARGETS.iter().map(|(name, _)| *name))
    }

    /// Whether it is a CPU that computes in vectors: rows after rows and panels suit it.
    pub fn is_vector_cpu(&self) -> bool {
        self.vectors.alu && self.groups.is_none()
    }

    /// This machine's processor.
    pub fn native() -> Target {
        let lacks = |bytes| if bytes < 32 { SHORT } else { WIDE };
        #[cfg(target_arch = "x86_64")]
        let (bytes, registers, fma) = match () {
            () if is_x86_feature_detected!("avx512f") => (64, 32, true),
            () if is_x86_feature_detected!("avx2") => (32, 16, is_x86_feature_detected!("fma")),
            () => (16, 16, false),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (bytes, registers, fma) = (16, 32, cfg!(target_arch = "aarch64"));
        let vectors = Vectors { bytes, registers, lacks: lacks(bytes), ..ALL_VECTORS };
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
        Target { fma, vectors, asks_early: true, threads, ..Target::PLAIN }
    }
}

impl Default for Target {
    fn default() -> Target {
        Target::PLAIN
    }
}
