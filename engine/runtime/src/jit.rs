//! The device `jit`: Cranelift compiles kernels in this process, without a compiler to install and
//! without files.
//!
//! The kernels of a call of `compile` share modules, of at most 64 kernels each. The code of a
//! module is freed when its last executable is dropped.

mod emit;
mod emitter;
mod helpers;
mod vector;

use std::sync::{Arc, Mutex};

use cranelift_codegen::ir::{AbiParam, Signature as MachineSignature, UserFuncName, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};
use gradiff_graph::target::Vectors;
use gradiff_graph::{BoundedLinear, Linear, Target};
use gradiff_render::{Legalization, Legalizations, legalize};

use crate::device::bounded_linears;
use crate::launch::executed_uops;
use crate::locked::Locked;
use crate::memory::Memory;
use crate::signature::Signature;
use crate::{Device, Error, Executable};

/// The maximum number of kernels in a module.
const KERNELS_PER_MODULE: usize = 64;

/// The number of executed uops above which a kernel is optimised. Optimising doubles the compile
/// time (0.15 instead of 0.08 ms for 35 uops), and a uop takes about a nanosecond at most.
const HEAVY_UOPS: i128 = 200_000;

/// The legalisations that Cranelift requires. It takes shift amounts modulo the width.
const REQUIRED: Legalizations = Legalizations::both(&[
    Legalization::Half,
    Legalization::MulAcc,
    Legalization::Recip,
    Legalization::Floor,
    Legalization::Division,
    Legalization::Maximum,
]);

/// The code generators for this machine.
pub(crate) struct Jit {
    /// Without optimisations.
    quick: OwnedTargetIsa,
    /// With optimisations.
    optimising: OwnedTargetIsa,
}

impl Jit {
    /// Creates the code generators for this machine.
    pub(crate) fn open() -> Result<Jit, Error> {
        let unavailable = |why: String| Error::Unavailable {
            device: "jit",
            why: format!("Cranelift cannot generate code for this machine ({why}); use `interp`"),
        };
        let quick = Jit::generator("none").map_err(unavailable)?;
        Ok(Jit { quick, optimising: Jit::generator("speed").map_err(unavailable)? })
    }

    /// Creates a code generator with an optimisation level of Cranelift.
    fn generator(opt_level: &str) -> Result<OwnedTargetIsa, String> {
        let mut flags = settings::builder();
        // The verifier doubles the compile time, so only debug builds run it.
        let is_checked = if cfg!(debug_assertions) { "true" } else { "false" };
        let choices = [
            // A colocated call reaches only addresses near the code, and helpers may be anywhere.
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
            ("opt_level", opt_level),
            ("enable_verifier", is_checked),
            ("unwind_info", "false"),
            // A stack frame with local arrays may be larger than the guard page.
            ("enable_probestack", "true"),
            ("probestack_strategy", "inline"),
        ];
        for (name, value) in choices {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags));
        isa.map_err(|error| error.to_string())
    }

    /// Returns the code generator for a kernel.
    fn generator_of(&self, kernel: &Linear) -> &OwnedTargetIsa {
        match HEAVY_UOPS < executed_uops(kernel) {
            true => &self.optimising,
            false => &self.quick,
        }
    }

    /// The type of the function of a kernel: it takes the array of the addresses of parameters.
    fn machine_signature(isa: &OwnedTargetIsa) -> MachineSignature {
        let mut machine = MachineSignature::new(isa.default_call_conv());
        machine.params.push(AbiParam::new(types::I64));
        machine
    }

    /// Writes the function of a kernel into the context. Returns the kernel's signature.
    fn emit(
        isa: &OwnedTargetIsa,
        kernel: &Linear,
        context: &mut cranelift_codegen::Context,
        functions: &mut FunctionBuilderContext,
    ) -> Result<Signature, Error> {
        let signature = Signature::of(kernel)?;
        let kernel = &*legalize(kernel, &REQUIRED);
        context.func.signature = Jit::machine_signature(isa);
        emit::emit(kernel, &signature, &mut context.func, functions, &**isa)?;
        Ok(signature)
    }

    /// Compiles kernels into a module.
    fn compile_module(
        isa: &OwnedTargetIsa,
        kernels: &[&Linear],
    ) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let builder = JITBuilder::with_isa(isa.clone(), default_libcall_names());
        let mut code = OwnedModule(Some(JITModule::new(builder)));
        let module = code.0.as_mut().expect("just created");
        let mut context = module.make_context();
        let mut functions = FunctionBuilderContext::new();
        let mut defined = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let failed = |error: &dyn std::fmt::Display| Error::Jit {
                kernel: kernel.name.clone(),
                why: error.to_string(),
            };
            let machine = Jit::machine_signature(isa);
            let id = module.declare_anonymous_function(&machine).map_err(|e| failed(&e))?;
            context.func.name = UserFuncName::user(0, id.as_u32());
            let signature = Jit::emit(isa, kernel, &mut context, &mut functions)?;
            module.define_function(id, &mut context).map_err(|error| failed(&error_text(error)))?;
            module.clear_context(&mut context);
            defined.push((signature, id));
        }
        module.finalize_definitions().map_err(|error| Error::Jit {
            kernel: kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>().join(" "),
            why: error_text(error),
        })?;
        let entries: Vec<_> = defined
            .into_iter()
            .map(|(signature, id)| (signature, module.get_finalized_function(id)))
            .collect();
        let code = Arc::new(Code(Mutex::new(code)));
        let executables = entries.into_iter().map(|(signature, address)| {
            // SAFETY: the address is that of a finalized function with this signature, and `code`,
            // which the kernel holds, keeps it alive.
            let entry = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
            let executable: Arc<dyn Executable> =
                Arc::new(Kernel { signature, entry, _code: code.clone() });
            executable
        });
        Ok(executables.collect())
    }
}

/// The text of an error. Errors of the verifier have more details in their debug format.
fn error_text(error: cranelift_module::ModuleError) -> String {
    match error {
        cranelift_module::ModuleError::Compilation(error) => format!("{error:?}"),
        error => error.to_string(),
    }
}

impl Device for Jit {
    fn name(&self) -> &'static str {
        "jit"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = bounded_linears(kernels)?;
        let mut executables = vec![None; kernels.len()];
        for isa in [&self.quick, &self.optimising] {
            let numbers: Vec<usize> = (0..kernels.len())
                .filter(|number| std::ptr::eq(self.generator_of(kernels[*number]), isa))
                .collect();
            for numbers in numbers.chunks(KERNELS_PER_MODULE) {
                let chunk: Vec<&Linear> = numbers.iter().map(|number| kernels[*number]).collect();
                let compiled = Jit::compile_module(isa, &chunk)?;
                numbers.iter().zip(compiled).for_each(|(n, kernel)| executables[*n] = Some(kernel));
            }
        }
        Ok(executables.into_iter().flatten().collect())
    }

    fn assembly(&self, kernel: &BoundedLinear) -> Result<Option<String>, Error> {
        let kernels = bounded_linears(&[kernel])?;
        let isa = self.generator_of(kernels[0]);
        let mut context = cranelift_codegen::Context::new();
        context.set_disasm(true);
        Jit::emit(isa, kernels[0], &mut context, &mut FunctionBuilderContext::new())?;
        let compiled = context.compile(&**isa, &mut Default::default());
        let compiled = compiled.map_err(|error| Error::Jit {
            kernel: kernels[0].name.clone(),
            why: format!("{:?}", error.inner),
        })?;
        Ok(compiled.vcode.clone())
    }

    /// Describes this machine as far as Cranelift uses it: vectors have 128 bits at most, those of
    /// 16-bit floats are not emitted, and a multiply-add is a product and a sum, so it is not fast.
    fn target(&self) -> Target {
        let flags = self.quick.isa_flags();
        let has = |name| flags.iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
        let vectors = match self.quick.name() {
            "x64" => Vectors::cpu(16, 16),
            "riscv64" if !has("has_v") => Vectors::default(),
            _ => Vectors::cpu(16, 32),
        };
        Target { vectors: Vectors { half_lanes: 0, ..vectors }, ..Target::PLAIN }
    }

    fn describe(&self) -> String {
        format!("Cranelift {}, in process, for {}", cranelift_codegen::VERSION, self.quick.triple())
    }
}

/// The entry point of a compiled kernel. It takes the addresses of the parameters as an array.
type Entry = unsafe extern "C" fn(*const *mut u8);

/// A module whose code is freed when this is dropped.
struct OwnedModule(Option<JITModule>);

impl Drop for OwnedModule {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: every kernel of the module holds an `Arc` of the `Code` that contains this,
            // so no kernel is left that could call the code. If the compile failed, there never was
            // one.
            unsafe { module.free_memory() };
        }
    }
}

/// The code of a module. The mutex is never locked; it only makes the type `Sync`.
struct Code(#[expect(dead_code, reason = "kept for its drop")] Mutex<OwnedModule>);

struct Kernel {
    signature: Signature,
    entry: Entry,
    _code: Arc<Code>,
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut locked = Locked::new(&self.signature, memories)?;
        let pointers = locked.pointers();
        // SAFETY: the code accesses only elements of its parameters (the promise of lowering, see
        // `Executable::run`); each pointer is to at least as many elements as the kernel declares,
        // locked for reading or writing as the kernel does; `_code` keeps the code alive.
        unsafe { (self.entry)(pointers.as_ptr()) };
        locked.mark_written();
        Ok(())
    }
}
