//! Linear uops to source text, one file per language. Knows no device and does no IO.

mod bounds;
mod c;
mod c_scalar;
mod c_vector;
mod code;
mod cuda;
mod dialect;
mod error;
mod helpers;
mod legalize;
mod llvm;
mod llvm_alu;
mod llvm_body;
mod metal;
mod opencl;
mod ptx;
mod ptx_alu;
mod scalar;
mod vector;
mod wgsl;
mod wgsl_types;
mod writer;

pub use bounds::find_wrapping;
pub use c::{c, c_named, c_prelude};
pub use code::{Code, Helpers};
pub use error::Error;
pub use legalize::{Legalization, Legalizations, legalize, legalize_traced};

use c::c_definition;
pub use cuda::cuda_dynamic_bytes;
use cuda::{cuda, cuda_definition, cuda_prelude};
use gradiff_graph::{DType, Linear};
use llvm::{llvm, llvm_definition, llvm_prelude};
use metal::{metal, metal_definition, metal_prelude};
use opencl::{opencl, opencl_definition, opencl_prelude};
use ptx::{ptx, ptx_definition, ptx_prelude};
use wgsl::{wgsl, wgsl_core, wgsl_definition, wgsl_prelude};

/// A language that kernels can be rendered in.
#[derive(Debug)]
pub struct Language {
    /// The name of the language on the command line.
    pub name: &'static str,
    /// The file extension, without the dot.
    pub extension: &'static str,
    /// Renders one kernel, without the prelude.
    pub render: fn(&Linear) -> Result<Code, Error>,
    /// Returns the prelude of a file whose kernels use these helpers.
    pub prelude: fn(&Helpers) -> String,
    /// Returns the definition of a helper; `None` if there is none of this name.
    pub definition: fn(&str) -> Option<Code>,
    /// The maximal number of elements of one load or store of a type, a power of two; 1 if there
    /// are no vectors of it.
    pub lanes_max: fn(DType) -> u8,
    /// Returns whether elementwise ops take vectors of a type.
    pub has_vector_alu: fn(DType) -> bool,
}

/// All languages.
pub const LANGUAGES: &[Language] = &[
    Language {
        name: "c",
        extension: "c",
        render: c,
        prelude: c_prelude,
        definition: c_definition,
        lanes_max: |_| 64,
        has_vector_alu: |_| true,
    },
    Language {
        name: "cuda",
        extension: "cu",
        render: cuda,
        prelude: cuda_prelude,
        definition: cuda_definition,
        lanes_max: cuda::lanes_max,
        has_vector_alu: |_| false,
    },
    Language {
        name: "opencl",
        extension: "cl",
        render: opencl,
        prelude: opencl_prelude,
        definition: opencl_definition,
        lanes_max: opencl::lanes_max,
        has_vector_alu: opencl::has_vector_alu,
    },
    Language {
        name: "metal",
        extension: "metal",
        render: metal,
        prelude: metal_prelude,
        definition: metal_definition,
        lanes_max: metal::lanes_max,
        has_vector_alu: metal::has_vector_alu,
    },
    Language {
        name: "wgsl",
        extension: "wgsl",
        render: wgsl,
        prelude: wgsl_prelude,
        definition: wgsl_definition,
        lanes_max: |dtype| wgsl::lanes_max(wgsl_types::EXTENDED, dtype),
        has_vector_alu: |dtype| wgsl_types::EXTENDED.is_native(dtype),
    },
    Language {
        name: "wgsl-core",
        extension: "wgsl",
        render: wgsl_core,
        prelude: wgsl_prelude,
        definition: wgsl_definition,
        lanes_max: |dtype| wgsl::lanes_max(wgsl_types::CORE, dtype),
        has_vector_alu: |dtype| wgsl_types::CORE.is_native(dtype),
    },
    Language {
        name: "llvm",
        extension: "ll",
        render: llvm,
        prelude: llvm_prelude,
        definition: llvm_definition,
        lanes_max: llvm::lanes_max,
        has_vector_alu: |_| true,
    },
    Language {
        name: "ptx",
        extension: "ptx",
        render: ptx,
        prelude: ptx_prelude,
        definition: ptx_definition,
        lanes_max: ptx::lanes_max,
        has_vector_alu: |_| true,
    },
];
