//! Descriptions of the devices that run kernels: what they support, and their limits. The optimiser
//! and the launch of a kernel read the same one, which the opened device makes of what the machine
//! says. A row of the table describes what every device of a kind has, for lowering without one.

pub use crate::thresholds::Thresholds;
use crate::{DType, Instruction, Linear, Op};

/// Functions over a type.
pub type Functions = &'static [(Op, DType)];

/// The functions that can be expanded into sums and products, if a target does not support them.
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

/// The functions that are faster expanded than lane by lane in vectors of 32 bytes and more, and
/// (`SHORT`) in vectors of 16 bytes: an expanded sin of f32 took 3.1 ns in vectors of 64 bytes, 5.8
/// of 32, 18 of 16, and glibc's function 6.9.
const WIDE: Functions = FUNCTIONS.split_at(7).0;
const SHORT: Functions = FUNCTIONS.split_at(6).0;

/// A device, as far as passes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// True if it computes in f16; if not, f16 is computed in f32 and rounded back after each op.
    pub native_f16: bool,
    /// True if it computes in bf16; if not, bf16 is computed in f32 and rounded back.
    pub native_bf16: bool,
    /// True if `x*y+z` is one op.
    pub mulacc: bool,
    /// True if `mulacc` is fast, so that products and sums are contracted to it.
    pub fma: bool,
    /// True if the compiler may treat floats as real numbers: distribute products, and add the two
    /// parts of a constant that is split to keep more digits.
    pub reassociates: bool,
    /// True if products by powers of two become shifts.
    pub shifts: bool,
    /// The functions that it does not support, or not with the required accuracy.
    pub unsupported: Functions,
    /// The types that it does not have. Kernels with them are lowered, but cannot be compiled.
    pub unsupported_types: &'static [DType],
    /// True if upcast and unrolled ranges are expanded; if not, they are loops.
    pub unrolls: bool,
    /// Its vectors.
    pub vectors: Vectors,
    /// True if loads may prefetch.
    pub prefetches: bool,
    /// The sizes from which on kernels are lowered in another way.
    pub thresholds: Thresholds,
    /// Maximal number of arrays of a kernel, the result included.
    pub arrays_max: u32,
    /// Number of host threads that run a kernel at once.
    pub threads: i64,
    /// Its thread groups, if it has any.
    pub groups: Option<Groups>,
    /// True if threads copy from memory to local memory while they compute.
    pub copies_async: bool,
    /// Names of the [`TensorCore`](crate::tensor_core::TensorCore)s, best ones first. The one of
    /// tf32, which rounds f32 to 10 bits, is in targets of its own (`cuda-tf32`, `ptx-tf32`).
    pub tensor_cores: &'static [&'static str],
}

/// The vectors of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vectors {
    /// Bytes of the longest one; 0 if there are none.
    pub bytes: u32,
    /// Number of vector registers.
    pub registers: i64,
    /// True if there is vector arithmetic; if not, vectors are only loaded and stored.
    pub alu: bool,
    /// True if the lanes of two vectors are permuted in an instruction or two.
    pub permutes: bool,
    /// True if loads and stores must be aligned to the length of the vector.
    pub aligned: bool,
    /// Most lanes of a vector, other than of f16, bf16 and bool; `bytes` limits them, too.
    pub lanes: i64,
    /// Most lanes of a vector of f16 or bf16; 0 if there are none.
    pub half_lanes: i64,
    /// Most lanes of a vector of bools, of a byte each; 0 if there are none.
    pub bool_lanes: i64,
    /// The functions that it supports for scalars only.
    pub unsupported: Functions,
}

impl Vectors {
    /// The vectors of a CPU with registers of so many bytes, for any number of lanes that fits.
    pub const fn cpu(bytes: u32, registers: i64) -> Vectors {
        let unsupported = if bytes < 32 { SHORT } else { WIDE };
        let (alu, permutes, aligned) = (true, 32 <= bytes, false);
        let (lanes, half_lanes, bool_lanes) = (64, 64, 64);
        Vectors {
            bytes,
            registers,
            alu,
            permutes,
            aligned,
            lanes,
            half_lanes,
            bool_lanes,
            unsupported,
        }
    }

    /// Returns whether elements that are two apart, or in reverse order, are accessed as vectors
    /// whose lanes are permuted. Such vectors are not aligned.
    pub const fn may_interleave(&self) -> bool {
        self.alu && self.permutes && !self.aligned
    }

    /// Returns the most lanes of a vector of a type; 0 if there is none.
    pub fn lanes_of(&self, dtype: DType) -> i64 {
        let limit = match dtype {
            DType::Void => return 0,
            DType::Bool => self.bool_lanes,
            DType::F16 | DType::BF16 => self.half_lanes,
            _ => self.lanes,
        };
        limit.min(i64::from(self.bytes) / dtype.size_bytes() as i64)
    }
}

/// The thread groups of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Most threads of a group.
    pub threads: i64,
    /// Most threads of a group in each dimension, the innermost one first.
    pub sizes: [i64; 3],
    /// Most groups in each dimension, the innermost one first.
    pub counts: [i64; 3],
    /// Bytes of local memory, which the threads of a group share.
    pub local_bytes: i64,
    /// Least bytes of an element of local memory.
    pub element_bytes: i64,
}

impl Groups {
    /// Draws smaller limits from a number: fewer threads, a smaller grid, less local memory.
    pub fn smaller(self, seed: u64) -> Groups {
        let below = |shift: u32, bound: i64, limit: i64| {
            let drawn = (seed >> shift & 0xffff) as i64;
            limit.min(1 + drawn % bound)
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

    /// Caps the limits at those that CUDA has on all GPUs. Kernels gain nothing beyond, where PoCL
    /// offers groups of 4096 threads with megabytes of local memory.
    pub fn capped(self) -> Groups {
        self.at_most(CUDA_GROUPS)
    }

    /// Caps the limits at these.
    pub fn at_most(self, limits: Groups) -> Groups {
        let least = |x: [i64; 3], y: [i64; 3]| [0, 1, 2].map(|dim| x[dim].min(y[dim]));
        Groups {
            threads: self.threads.min(limits.threads),
            sizes: least(self.sizes, limits.sizes),
            counts: least(self.counts, limits.counts),
            local_bytes: self.local_bytes.min(limits.local_bytes),
            ..self
        }
    }
}

/// The limits that CUDA guarantees for all supported GPUs.
const CUDA_GROUPS: Groups = Groups {
    threads: 1024,
    sizes: [1024, 1024, 64],
    counts: [2_147_483_647, 65_535, 65_535],
    local_bytes: 48 << 10,
    element_bytes: 1,
};

/// The default limits of WebGPU, which are the smallest of all APIs.
const LEAST_GROUPS: Groups = Groups {
    threads: 256,
    sizes: [256, 256, 64],
    counts: [65_535, 65_535, 65_535],
    local_bytes: 16 << 10,
    element_bytes: 1,
};

/// The tensor cores of sm_80 and later.
const CUDA_CORES: &[&str] = &["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_f16"];

/// The tensor cores of CUDA, and small ones for tests with small tensors.
const EMULATED_CORES: &[&str] =
    &["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_f16", "m4n2k2_f32", "m4n2k2_f16", "m4n2k2_bf16"];

/// A CUDA GPU from sm_80 on, programmed in CUDA C. A group of such a GPU has at least 99 KiB of
/// local memory if a kernel asks for it; one is left for the alignment of arrays.
const CUDA: Target = Target {
    // Parameters have 4 KiB.
    arrays_max: 500,
    groups: Some(Groups { local_bytes: 98 << 10, ..CUDA_GROUPS }),
    fma: true,
    shifts: true,
    copies_async: true,
    vectors: Vectors { half_lanes: 8, ..QUADS },
    tensor_cores: CUDA_CORES,
    ..Target::PLAIN
};

/// The same GPU programmed in PTX, which has one function of the required accuracy: its exp2 of f32
/// is within 2 ulp.
const PTX: Target = Target {
    groups: Some(CUDA_GROUPS),
    unsupported: FUNCTIONS.split_at(1).1,
    copies_async: false,
    ..CUDA
};

/// Vectors of 16 bytes and 4 lanes, which every GPU can load.
const QUADS: Vectors = Vectors {
    alu: false,
    permutes: false,
    aligned: true,
    bytes: 16,
    lanes: 4,
    half_lanes: 4,
    bool_lanes: 0,
    unsupported: &[],
    ..LONG_VECTORS
};

/// The vectors of a CPU with AVX-512.
const LONG_VECTORS: Vectors = Vectors::cpu(64, 32);

/// The types that core WGSL does not have.
const WIDE_TYPES: &[DType] = &[DType::I64, DType::U64, DType::F64];

/// WebGPU, in which elements have 4 bytes or more, with the limits that every device has.
const WGSL: Target = Target {
    arrays_max: 8,
    groups: Some(Groups { element_bytes: 4, ..LEAST_GROUPS }),
    reassociates: true,
    shifts: true,
    unsupported: FUNCTIONS,
    ..Target::PLAIN
};

/// Targets by name: languages, each as every device of it has it, and configurations.
const TARGETS: &[(&str, Target)] = &[
    ("plain", Target::PLAIN),
    ("loops", Target { unrolls: false, ..Target::PLAIN }),
    (
        "short-vectors",
        Target { vectors: Vectors { half_lanes: 0, ..Vectors::cpu(16, 16) }, ..Target::PLAIN },
    ),
    ("vectors", Target { fma: true, vectors: LONG_VECTORS, ..Target::PLAIN }),
    (
        "groups",
        Target {
            groups: Some(CUDA_GROUPS),
            shifts: true,
            copies_async: true,
            unsupported: FUNCTIONS,
            vectors: Vectors { bytes: 16, ..LONG_VECTORS },
            tensor_cores: EMULATED_CORES,
            ..Target::PLAIN
        },
    ),
    ("cuda", CUDA),
    // GPUs before sm_80.
    (
        "cuda-old",
        Target { groups: Some(CUDA_GROUPS), copies_async: false, tensor_cores: &[], ..CUDA },
    ),
    ("cuda-tf32", Target { tensor_cores: &["m16n8k8_tf32"], ..CUDA }),
    ("ptx", PTX),
    ("ptx-tf32", Target { tensor_cores: &["m16n8k8_tf32"], ..PTX }),
    (
        "opencl",
        Target {
            // Parameters have 1 KiB on every device.
            arrays_max: 120,
            groups: Some(LEAST_GROUPS),
            shifts: true,
            vectors: Vectors { alu: true, lanes: 16, half_lanes: 0, ..QUADS },
            ..Target::PLAIN
        },
    ),
    (
        "metal",
        Target {
            arrays_max: 30,
            groups: Some(LEAST_GROUPS),
            shifts: true,
            vectors: QUADS,
            unsupported_types: &[DType::F64],
            ..Target::PLAIN
        },
    ),
    ("wgsl", WGSL),
    ("wgsl-core", Target { unsupported_types: WIDE_TYPES, ..WGSL }),
    ("llvm", Target { fma: true, vectors: LONG_VECTORS, ..Target::PLAIN }),
];

impl Target {
    /// A CPU without vectors: 16-bit floats are only stored, all other ops are supported.
    pub const PLAIN: Target = Target {
        native_f16: false,
        native_bf16: false,
        mulacc: true,
        fma: false,
        reassociates: false,
        shifts: false,
        unrolls: true,
        vectors: Vectors {
            bytes: 0,
            registers: 0,
            alu: false,
            permutes: false,
            aligned: false,
            lanes: 0,
            half_lanes: 0,
            bool_lanes: 0,
            unsupported: &[],
        },
        unsupported: &[],
        unsupported_types: &[],
        prefetches: false,
        thresholds: Thresholds::USUAL,
        arrays_max: u32::MAX,
        threads: 1,
        groups: None,
        copies_async: false,
        tensor_cores: &[],
    };

    /// Returns the target of this name.
    ///
    /// # Panics
    /// If no target has it.
    pub fn of(name: &str) -> Target {
        Target::named(name).unwrap_or_else(|| panic!("no target is called {name}"))
    }

    /// Returns the target of this name.
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
    }

    /// Iterates over the names of all targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TARGETS.iter().map(|(name, _)| *name)
    }

    /// Returns whether it is a CPU with vector arithmetic, which profits from caching rows and from
    /// packing panels.
    pub fn is_vector_cpu(&self) -> bool {
        self.vectors.alu && self.groups.is_none()
    }

    /// Describes a type or function of the kernel that is not supported; `None` if there is none.
    pub fn find_unsupported(&self, kernel: &Linear) -> Option<String> {
        let problem = |uop: &Instruction| {
            let (op, dtype) = (uop.op, uop.dtype);
            // Functions of 16-bit floats are computed in f32.
            let computed = match dtype {
                DType::F16 | DType::BF16 => DType::F32,
                dtype => dtype,
            };
            match self.unsupported_types.contains(&dtype) {
                true => Some(format!("has no {dtype}")),
                false if self.unsupported.contains(&(op, computed)) => {
                    Some(format!("has no exact {op} of {dtype}"))
                }
                false => None,
            }
        };
        kernel.uops.iter().find_map(problem)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.groups {
            None => write!(f, "no groups")?,
            Some(Groups { threads, sizes: [x, y, z], local_bytes, .. }) => write!(
                f,
                "groups of {threads} threads at most ({x} x {y} x {z}) with {local_bytes} bytes of \
                 local memory"
            )?,
        }
        match self.vectors.bytes {
            0 => write!(f, ", no vectors"),
            bytes => write!(f, ", vectors of {bytes} bytes"),
        }?;
        if 1 < self.threads {
            write!(f, ", {} threads", self.threads)?;
        }
        if !self.tensor_cores.is_empty() {
            write!(f, ", tensor cores")?;
        }
        self.unsupported_types.iter().try_for_each(|dtype| write!(f, ", no {dtype}"))
    }
}

impl Default for Target {
    fn default() -> Target {
        Target::PLAIN
    }
}
