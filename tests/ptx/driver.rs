//! A device that runs PTX.
//!
//! Owns: kernels by name, in all that one run compiles; the trait of a device. Refuses to know: instructions. Everything is done when it
//! is asked for. The first failure stays the device's.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kernels::{Address, Allocation, Arg, Driver, Error, Event, Grid, Kernel, Result};

use super::code::Code;
use super::decode::decode;
use super::launch::Processor;
use super::memory::Memory;
use super::text::parse;

/// Bytes of memory that a device says it has; nobody holds it to that.
const MEMORY: usize = 64 << 20;

/// File, variant, name.
type Name = (String, String, String);

fn name_of(kernel: &Kernel) -> Name {
    (kernel.file.to_owned(), kernel.variant.to_owned(), kernel.name.to_owned())
}

/// Kernels of one architecture, and which of them were launched.
#[derive(Default)]
pub struct Library {
    kernels: HashMap<Name, Code>,
    launched: Mutex<BTreeSet<Name>>,
}

impl Library {
    /// Adds a compiled file.
    ///
    /// # Errors
    /// What is not understood of it.
    pub fn add(
        &mut self,
        (file, variant): (&str, &str),
        architecture: u32,
        text: &str,
    ) -> std::result::Result<(), String> {
        let told = |why: String| format!("{file} {variant} for sm_{architecture}: {why}");
        let (target, entries) = parse(text).map_err(told)?;
        if target != architecture || entries.is_empty() {
            return Err(told(format!("{} kernels for sm_{target}", entries.len())));
        }
        for entry in &entries {
            let name = (file.to_owned(), variant.to_owned(), entry.name.clone());
            self.kernels.insert(name, decode(entry).map_err(told)?);
        }
        Ok(())
    }

    /// Kernels, and those that nobody launched.
    pub fn idle(&self) -> (usize, Vec<String>) {
        let launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.kernels.keys().filter(|name| !launched.contains(*name));
        let mut idle: Vec<_> = idle.map(|(file, variant, name)| format!("{file} {variant}: {name}")).collect();
        idle.sort();
        (self.kernels.len(), idle)
    }
}

/// A device.
pub struct Machine {
    architecture: u32,
    library: Arc<Library>,
    state: Arc<Mutex<State>>,
}

struct State {
    processor: Processor,
    failed: Option<Error>,
}

/// Gives memory back.
struct Keep(Arc<Mutex<State>>, Address);

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).processor.memory.free(self.1);
    }
}

impl Machine {
    pub fn new(architecture: u32, library: &Arc<Library>) -> Machine {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Memory::new(NEXT.fetch_add(1, Ordering::Relaxed) % 1000 + 1);
        let state = State { processor: Processor::new(memory), failed: None };
        Machine { architecture, library: library.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// Instructions that its threads have run.
    pub fn instructions(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).processor.instructions
    }

    /// Does something unless something failed before.
    fn with<T>(&self, work: impl FnOnce(&mut Processor) -> std::result::Result<T, String>) -> Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let done = work(&mut state.processor).map_err(|why| Error(format!("PTX for sm_{}: {why}", self.architecture)));
        state.failed = done.as_ref().err().cloned();
        done
    }

    fn code(&self, kernel: &Kernel) -> std::result::Result<&Code, String> {
        self.library.kernels.get(&name_of(kernel)).ok_or_else(|| format!("there is no kernel {kernel}"))
    }
}

impl Driver for Machine {
    fn describe(&self) -> String {
        format!("PTX for sm_{}", self.architecture)
    }

    fn architecture(&self) -> u32 {
        self.architecture
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.with(|processor| Ok((MEMORY.saturating_sub(processor.memory.used()), MEMORY)))
    }

    fn prepare(&self, kernels: &[Kernel]) -> Result<()> {
        self.with(|_| kernels.iter().try_for_each(|kernel| self.code(kernel).map(|_| ())))
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation> {
        let at = self.with(|processor| Ok(processor.memory.allocate(bytes)))?;
        Ok(Allocation { at, len: bytes, keep: Box::new(Keep(self.state.clone(), at)) })
    }

    fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        self.with(|processor| processor.memory.write(to, from))
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<()> {
        self.with(|processor| {
            let (bytes, known) = processor.memory.read(from, to.len())?;
            match known.iter().position(|known| !known) {
                Some(at) => Err(format!("byte {at} of {} that are downloaded was not written", to.len())),
                None => {
                    to.copy_from_slice(&bytes);
                    Ok(())
                }
            }
        })
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        self.with(|processor| {
            let read = processor.memory.read(from, bytes)?;
            processor.memory.put(to, &read)
        })
    }

    fn clear(&self, at: Address, bytes: usize) -> Result<()> {
        self.with(|processor| processor.memory.write(at, &vec![0; bytes]))
    }

    fn receive(&self, other: &dyn Driver, from: Address, to: Address, bytes: usize) -> Result<()> {
        let Some(other) = (other as &dyn Any).downcast_ref::<Machine>() else {
            return Err(Error(format!("cannot copy from {}, which is another kind", other.describe())));
        };
        let read = other.with(|processor| processor.memory.read(from, bytes))?;
        self.with(|processor| processor.memory.put(to, &read))
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        self.with(|processor| {
            let code = self.code(kernel)?;
            self.library.launched.lock().unwrap_or_else(PoisonError::into_inner).insert(name_of(kernel));
            processor.launch(code, grid, args).map_err(|why| format!("{kernel}: {why}"))
        })
    }

    fn record(&self) -> Result<Event> {
        Ok(Arc::new(Instant::now()))
    }

    fn wait(&self, event: &Event) -> Result<()> {
        time_of(event).map(|_| ())
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        Ok(time_of(to)?.saturating_duration_since(time_of(from)?).as_secs_f64())
    }

    fn finish(&self) -> Result<()> {
        self.with(|_| Ok(()))
    }
}

fn time_of(event: &Event) -> Result<Instant> {
    event.downcast_ref::<Instant>().copied().ok_or_else(|| Error("the event is of another kind of device".into()))
}
