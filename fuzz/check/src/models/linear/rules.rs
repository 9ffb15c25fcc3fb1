//! The requirements of the text of a kernel in each language, and the guarantees of devices.
//!
//! They are stated here again, from the specifications and from the texts themselves, so that a
//! target of the engine that promises too much is found. Nothing here is read from `graph::Target`.
//! The rules are of the engine's fixed targets, so they state what every device of a language has;
//! a device that is open has more, and its driver refuses what is beyond it.
//!
//! Alignment: CUDA, OpenCL and Metal access vectors through a pointer to a vector type
//! (`*(float4*)(data0+alu0)`), whose address must be a multiple of the whole vector. PTX does so in
//! pieces of up to 4 elements and 16 bytes. WGSL accesses each lane. C, LLVM and machine code by
//! Cranelift access vectors with the alignment of one element.

use gradiff::graph::Linear;
use gradiff_eval::linear::{Alignment, Requirements};

/// Limits of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchLimits {
    /// Number of threads of a group.
    pub(super) threads: i64,
    /// Number of threads of a group in each dimension, the innermost first.
    pub(super) sizes: [i64; 3],
    /// Number of groups in each dimension, the innermost first.
    pub(super) counts: [i64; 3],
}

/// The limits and requirements of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The name of the target.
    pub(super) target: &'static str,
    /// The name of its language in messages.
    pub(super) language: &'static str,
    /// The name of that language among the engine's, if texts are checked.
    pub(super) text: Option<&'static str>,
    /// Limits of groups of threads; none where ranges of groups are not launched.
    pub(super) launch: Option<LaunchLimits>,
    /// Limit of the bytes of a group's arrays; without groups, of a thread's stack.
    pub(crate) local_bytes: i64,
    /// Least number of bytes of an element there.
    pub(crate) local_element_bytes: i64,
    pub(super) alignment: Alignment,
    /// Alignments of parameters and of local arrays, in bytes.
    pub(super) global_alignment: i64,
    pub(super) local_alignment: i64,
    /// Numbers of lanes that a load or store may have, besides 1.
    pub(super) lanes: &'static [u8],
    /// Bytes of the widest load or store.
    pub(super) vector_bytes: i64,
    /// True if ops other than loads, stores and products take vectors.
    pub(super) has_vector_alu: bool,
    /// The tensor cores of the device.
    pub(super) cores: &'static [&'static str],
}

impl Rules {
    /// The requirements on a kernel while it runs.
    pub(super) fn requirements(&self, kernel: &Linear) -> Requirements {
        let wrapping = gradiff::render::find_wrapping(kernel);
        Requirements {
            language: self.language,
            alignment: self.alignment,
            global_alignment: self.global_alignment,
            local_alignment: self.local_alignment,
            must_not_overflow: wrapping.into_iter().map(|may_wrap| !may_wrap).collect(),
        }
    }

    /// Returns whether there are groups of threads.
    pub(crate) fn has_groups(&self) -> bool {
        self.launch.is_some()
    }

    /// Numbers of lanes that a load or store may have, besides 1.
    pub(crate) fn lanes(&self) -> &'static [u8] {
        self.lanes
    }

    /// The rules of the target of this name.
    pub(crate) fn of(target: &str) -> Option<&'static Rules> {
        RULES.iter().find(|rules| rules.target == target)
    }
}

/// CUDA C++ programming guide, table of technical specifications, compute capabilities 8.0 and up;
/// shared memory of a thread block that asks for it, in 8.6 and 8.9. Vector accesses are of 1, 2,
/// 4, 8 or 16 bytes; memory from the allocator is aligned to 256 bytes, a part of it to 64.
const CUDA: Rules = Rules {
    target: "cuda",
    language: "CUDA",
    text: Some("cuda"),
    launch: Some(LaunchLimits {
        threads: 1024,
        sizes: [1024, 1024, 64],
        counts: [0x7fff_ffff, 0xffff, 0xffff],
    }),
    local_bytes: 101_376,
    local_element_bytes: 1,
    alignment: Alignment::Vector,
    global_alignment: 64,
    // `__shared__ __align__(16)`.
    local_alignment: 16,
    lanes: &[2, 4, 8],
    vector_bytes: 16,
    has_vector_alu: false,
    cores: &["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_f16"],
};

/// OpenCL 1.2, table 4.3: 32 KiB of local memory in the full profile; drivers of GPUs support a
/// local size of 256. Vectors lie at multiples of their size (6.1.5); `get_group_id` becomes an
/// `int`.
const OPENCL: Rules = Rules {
    target: "opencl",
    language: "OpenCL",
    text: Some("opencl"),
    launch: Some(LaunchLimits { threads: 256, sizes: [256; 3], counts: [0x7fff_ffff; 3] }),
    local_bytes: 32_768,
    // Memory objects are aligned to the largest type, `long16`.
    global_alignment: 128,
    local_alignment: 128,
    lanes: &[2, 4, 8, 16],
    vector_bytes: 128,
    has_vector_alu: true,
    cores: &[],
    ..CUDA
};

/// The WebGPU specification, 3.6.2, default limits. Elements of arrays are words or more.
const WGSL: Rules = Rules {
    target: "wgsl",
    language: "WGSL",
    text: Some("wgsl"),
    launch: Some(LaunchLimits { threads: 256, sizes: [256, 256, 64], counts: [65_535; 3] }),
    local_bytes: 16_384,
    local_element_bytes: 4,
    alignment: Alignment::Element,
    global_alignment: 16,
    local_alignment: 16,
    lanes: &[2, 4],
    has_vector_alu: true,
    cores: &[],
    ..CUDA
};

/// CPUs: memory is aligned to 64 bytes; a thread has a stack of at least 2 MiB, half of which a
/// kernel may use.
const CPU: Rules = Rules {
    target: "cpu",
    language: "C",
    text: Some("c"),
    launch: None,
    local_bytes: 1 << 20,
    local_element_bytes: 1,
    alignment: Alignment::Element,
    global_alignment: 64,
    local_alignment: 64,
    lanes: &[2, 4, 8, 16, 32, 64],
    vector_bytes: 64,
    has_vector_alu: true,
    cores: &[],
};

/// The rules of each target that kernels are checked for.
const RULES: &[Rules] = &[
    CUDA,
    Rules { target: "cuda-tf32", cores: &["m16n8k8_tf32"], ..CUDA },
    Rules {
        target: "ptx",
        language: "PTX",
        text: Some("ptx"),
        // Declared, without asking for more.
        local_bytes: 49_152,
        alignment: Alignment::Pieces,
        ..CUDA
    },
    OPENCL,
    // Metal feature set tables: 1024 threads and 32 KiB of threadgroup memory in every GPU family
    // from Apple4 on; vectors have 2 to 4 lanes.
    Rules {
        target: "metal",
        language: "Metal",
        text: Some("metal"),
        launch: Some(LaunchLimits { threads: 1024, sizes: [1024; 3], counts: [0x7fff_ffff; 3] }),
        local_bytes: 32_768,
        lanes: &[2, 4],
        vector_bytes: 32,
        has_vector_alu: true,
        cores: &[],
        ..CUDA
    },
    WGSL,
    Rules { target: "wgsl-core", language: "WGSL", text: Some("wgsl-core"), ..WGSL },
    CPU,
    Rules { target: "llvm", language: "LLVM", text: Some("llvm"), ..CPU },
    // A fictitious device whose limits small kernels reach; see `SMALL` in `device`.
    Rules {
        target: "small",
        language: "the small device",
        text: None,
        launch: Some(LaunchLimits { threads: 32, sizes: [16, 4, 3], counts: [40, 6, 3] }),
        local_bytes: 256,
        local_element_bytes: 4,
        alignment: Alignment::Vector,
        local_alignment: 16,
        has_vector_alu: true,
        cores: &["m4n2k2_f32", "m4n2k2_f16", "m4n2k2_bf16"],
        ..CUDA
    },
];
