//! Code on a device, and its launch.
//!
//! Owns: loaded modules, the functions in them, their arguments. Refuses to know: what kernels compute.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cudarc::driver::sys;

use super::compiler::{Compiler, Unit};
use super::context::{Context, Handle, Stream, call};
use crate::driver::{Arg, Error, Grid, Kernel, Result};
use crate::emulator;

/// The most arguments of a kernel.
const ARGUMENTS: usize = 64;

/// A kernel on the device.
struct Function {
    raw: Handle<sys::CUfunction>,
    /// As the host's compiler of the same text found them.
    parameters: &'static str,
}

/// What is loaded on a device.
pub struct Code {
    context: Arc<Context>,
    compiler: Compiler,
    /// The newest CUDA that the driver runs.
    driver: (u32, u32),
    modules: Mutex<HashMap<Unit, Handle<sys::CUmodule>>>,
    functions: RwLock<HashMap<Kernel, Arc<Function>>>,
}

impl Code {
    /// Nothing yet.
    pub fn new(context: &Arc<Context>, compiler: &Compiler, driver: (u32, u32)) -> Code {
        Code {
            context: context.clone(),
            compiler: compiler.clone(),
            driver,
            modules: Mutex::default(),
            functions: RwLock::default(),
        }
    }

    /// Compiles and loads what is not loaded yet.
    pub fn prepare(&self, kernels: &[Kernel]) -> Result<()> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let units: HashSet<Unit> = kernels.iter().map(|kernel| (kernel.file, kernel.variant)).collect();
        let missing: Vec<Unit> = units.into_iter().filter(|unit| !modules.contains_key(unit)).collect();
        let told = |e: Error| Error(format!("{}: {e}", self.context.name));
        let images = self.compiler.images(self.context.architecture, self.driver, &missing).map_err(told)?;
        for (unit, image) in missing.iter().zip(&images) {
            modules.insert(*unit, self.load(*unit, image)?);
        }
        for kernel in kernels {
            let function = self.find(modules[&(kernel.file, kernel.variant)], kernel)?;
            self.functions.write().unwrap_or_else(PoisonError::into_inner).insert(*kernel, Arc::new(function));
        }
        Ok(())
    }

    /// Hands code to the driver, which compiles it if it is not machine code.
    fn load(&self, (file, variant): Unit, image: &[u8]) -> Result<Handle<sys::CUmodule>> {
        use sys::CUjit_option_enum as JitOption;
        let mut log = [0 as c_char; 4096];
        let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len() - 1)];
        let mut raw = ptr::null_mut();
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image is what the compiler made (text ends in 0); at most as much of the log is written as was said.
        let loaded =
            unsafe { call!(self.context, cuModuleLoadDataEx(&mut raw, image.as_ptr().cast(), 2, options, values)) };
        let told = |Error(e)| {
            let log: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
            let as_variant = if variant.is_empty() { String::new() } else { format!(" as {variant}") };
            let log = String::from_utf8_lossy(&log);
            Error(format!("{file}.cu{as_variant}: {e} {}", log.trim()).trim_end().to_owned())
        };
        loaded.map_err(told)?;
        Ok(Handle(raw))
    }

    fn find(&self, module: Handle<sys::CUmodule>, kernel: &Kernel) -> Result<Function> {
        let (Some(parameters), Ok(name)) = (emulator::parameters(kernel), CString::new(kernel.name)) else {
            return Err(Error(format!("{}: there is no kernel {kernel}", self.context.name)));
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in 0.
        unsafe { call!(self.context, cuModuleGetFunction(&mut raw, module.0, name.as_ptr())) }
            .map_err(|e| Error(format!("{e}: {kernel}")))?;
        Ok(Function { raw: Handle(raw), parameters })
    }

    /// Runs a kernel; compiles it if nobody has asked for that.
    pub fn launch(&self, stream: &Stream, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        let loaded = || self.functions.read().unwrap_or_else(PoisonError::into_inner).get(kernel).cloned();
        let function = match loaded() {
            Some(function) => function,
            None => {
                self.prepare(&[*kernel])?;
                let Some(function) = loaded() else { panic!("what was prepared is loaded") };
                function
            }
        };
        let (expected, found) = (function.parameters, emulator::kinds(args));
        if expected != found || args.len() > ARGUMENTS {
            return Err(Error(format!(
                "{}: {kernel}: arguments are '{found}', parameters '{expected}' (p pointer, i int, f float)",
                self.context.name
            )));
        }
        let mut pointers = [ptr::null_mut::<c_void>(); ARGUMENTS];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            *pointer = match arg {
                Arg::At(address) => ptr::from_ref(address).cast_mut().cast(),
                Arg::Int(value) => ptr::from_ref(value).cast_mut().cast(),
                Arg::Float(value) => ptr::from_ref(value).cast_mut().cast(),
            };
        }
        let Grid { blocks: [x, y, z], threads: [tx, ty], shared } = grid;
        let (f, arguments) = (function.raw.0, pointers.as_mut_ptr());
        // SAFETY: the driver copies as many arguments as the kernel has, which is as many as there are, of the same sizes.
        // What the kernel does with them is its own affair: it touches only the device's memory.
        unsafe {
            call!(self.context, cuLaunchKernel(f, x, y, z, tx, ty, 1, shared, stream.raw(), arguments, ptr::null_mut()))
        }
        .map_err(|e| Error(format!("{e}: {kernel}, {grid:?}")))
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        for module in self.modules.lock().unwrap_or_else(PoisonError::into_inner).values() {
            // SAFETY: nothing launches any more, and what was launched is waited for by who drops the device.
            let _ = unsafe { call!(self.context, cuModuleUnload(module.0)) };
        }
    }
}
