//! The emulator's C++ half, made safe: finding kernels, running a block, guarded memory.
//!
//! Owns: the functions of host/emulate.cpp and the types they share. Refuses to know: streams, accounting, who
//! launches.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use crate::driver::{Address, Arg, Error, Grid, Kernel, Result};

/// A kernel and how it is called; the layout of `emulated::Entry`.
#[repr(C)]
struct Entry {
    file: *const c_char,
    variant: *const c_char,
    name: *const c_char,
    kinds: *const c_char,
    threads: u32,
    from: u32,
    run: extern "C" fn(*const u64),
}

/// What is run; the layout of `emulated::Launch`.
#[repr(C)]
struct RawLaunch {
    entry: *const Entry,
    label: *const c_char,
    blocks: [u32; 3],
    threads: [u32; 2],
    shared: u32,
    seed: u32,
    args: *const u64,
}

unsafe extern "C" {
    fn emulated_find(file: *const c_char, variant: *const c_char, name: *const c_char) -> *const Entry;
    fn emulated_block(launch: *const RawLaunch, index: u64) -> *const c_char;
    fn emulated_end_thread();
    fn emulated_map(bytes: usize, front: *mut usize) -> *mut u8;
    fn emulated_unmap(begin: *mut u8, bytes: usize);
    fn emulated_catch_faults();
}

/// What a library of kernels gives: this program's own, or one that was opened later.
pub(super) struct Core {
    find: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char) -> *const Entry,
    block: unsafe extern "C" fn(*const RawLaunch, u64) -> *const c_char,
    end_thread: unsafe extern "C" fn(),
    map: unsafe extern "C" fn(usize, *mut usize) -> *mut u8,
    unmap: unsafe extern "C" fn(*mut u8, usize),
    catch_faults: unsafe extern "C" fn(),
}

/// The kernels that were compiled with this program.
pub(super) static BUILT_IN: Core = Core {
    find: emulated_find,
    block: emulated_block,
    end_thread: emulated_end_thread,
    map: emulated_map,
    unmap: emulated_unmap,
    catch_faults: emulated_catch_faults,
};

/// Those opened later; none is ever closed.
static OPENED: Mutex<Vec<&'static Core>> = Mutex::new(Vec::new());

impl Core {
    /// The library at `path`, compiled from the same files as this program. It stays for ever: threads and signal handlers may
    /// be inside.
    pub(super) fn open(path: &Path) -> Result<&'static Core> {
        let refuse = |e: libloading::Error| Error(format!("{}: not a library of kernels: {e}", path.display()));
        // SAFETY: runs no code of its own when it is opened: units and emulator have no constructors.
        let library = unsafe { libloading::Library::new(path) }.map_err(refuse)?;
        // SAFETY: the functions of host/emulate.cpp and host/guard.cpp, whose types the fields have.
        let core = unsafe {
            Core {
                find: *library.get(b"emulated_find").map_err(refuse)?,
                block: *library.get(b"emulated_block").map_err(refuse)?,
                end_thread: *library.get(b"emulated_end_thread").map_err(refuse)?,
                map: *library.get(b"emulated_map").map_err(refuse)?,
                unmap: *library.get(b"emulated_unmap").map_err(refuse)?,
                catch_faults: *library.get(b"emulated_catch_faults").map_err(refuse)?,
            }
        };
        std::mem::forget(library);
        let core: &'static Core = Box::leak(Box::new(core));
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(core);
        // The program's own first: a fault outside the library's kernels is handed on to them.
        catch_faults();
        // SAFETY: as in `catch_faults`; once, for a library is opened once.
        unsafe { (core.catch_faults)() };
        Ok(core)
    }
}

/// A kernel that was compiled for this processor.
#[derive(Clone, Copy)]
pub(super) struct Code {
    entry: &'static Entry,
    core: &'static Core,
}

// SAFETY: an entry is a constant: names and a function that any thread may call.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// The kernel of that name; `None` if no file of the library has it.
    pub(super) fn find(core: &'static Core, kernel: &Kernel) -> Option<Self> {
        let [file, variant, name] =
            [kernel.file, kernel.variant, kernel.name].map(|text| CString::new(text).unwrap_or_default());
        // SAFETY: three strings that end with 0; what comes back is null or a constant of a library that stays.
        let entry = unsafe { (core.find)(file.as_ptr(), variant.as_ptr(), name.as_ptr()).as_ref() };
        entry.map(|entry| Code { entry, core })
    }

    /// The lowest architecture it runs on.
    pub(super) fn from(self) -> u32 {
        self.entry.from
    }

    /// The most threads a block may have.
    pub(super) fn threads(self) -> u32 {
        self.entry.threads
    }

    /// A letter for each parameter: p, i or f.
    pub(super) fn kinds(self) -> &'static str {
        // SAFETY: a constant string that ends with 0.
        unsafe { CStr::from_ptr(self.entry.kinds) }.to_str().unwrap_or("")
    }
}

/// A launch whose kernel, grid and arguments fit each other.
pub(super) struct Launch {
    code: Code,
    label: CString,
    grid: Grid,
    args: Vec<u64>,
}

impl Launch {
    /// `args` are of the kinds that `code` has; the grid is within what every device allows.
    pub(super) fn new(code: Code, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Self {
        let args = args.iter().map(|arg| match *arg {
            Arg::At(address) => address,
            Arg::Int(int) => u64::from(int.cast_unsigned()),
            Arg::Float(float) => u64::from(float.to_bits()),
        });
        let label = CString::new(kernel.to_string()).unwrap_or_default();
        Launch { code, label, grid, args: args.collect() }
    }

    /// Blocks in all.
    pub(super) fn blocks(&self) -> u64 {
        self.grid.blocks.iter().map(|&n| u64::from(n)).product()
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u64 {
        self.grid.threads.iter().map(|&n| u64::from(n)).product()
    }

    /// What people call it.
    pub(super) fn label(&self) -> &str {
        self.label.to_str().unwrap_or("")
    }

    /// Runs one block on this thread, its lanes in the order that `seed` gives. A kernel that leaves its memory by less
    /// than the guards see ruins other memory of the process, as on a device.
    pub(super) fn run(&self, index: u64, seed: u32) -> Result<()> {
        let Grid { blocks, threads, shared } = self.grid;
        let args = self.args.as_ptr();
        let raw = RawLaunch { entry: self.code.entry, label: self.label.as_ptr(), blocks, threads, shared, seed, args };
        // SAFETY: the kernel gets as many arguments as it has parameters, of their kinds; the grid has at most 1024
        // threads a block and `index` is one of its blocks. All that `raw` points at outlives the call.
        let message = unsafe { (self.code.core.block)(&raw, index) };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: a string that ends with 0, valid until this thread runs another block.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        Err(Error(format!("{}, {message}", self.label())))
    }
}

/// Gives back, when dropped, what this thread keeps for running blocks.
pub(super) struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for core in opened.into_iter().chain([&BUILT_IN]) {
            // SAFETY: no block runs on this thread now.
            unsafe { (core.end_thread)() };
        }
    }
}

/// Memory between two inaccessible pages, all bytes 0xff at first.
pub(super) struct Mapping {
    begin: *mut u8,
    bytes: usize,
    front: usize,
    core: &'static Core,
}

// SAFETY: plain memory; who reads and writes it when is the streams' business, as on a device.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` (at least 1) of memory, which the faults of this library's kernels are told by; `None` if the machine has none.
    pub(super) fn new(core: &'static Core, bytes: usize) -> Option<Self> {
        assert!(bytes > 0, "an empty mapping");
        let mut front = 0;
        // SAFETY: `front` is written before the return.
        let begin = unsafe { (core.map)(bytes, &mut front) };
        (!begin.is_null()).then_some(Mapping { begin, bytes, front, core })
    }

    /// Where it begins: a multiple of 256.
    pub(super) fn at(&self) -> Address {
        self.begin as Address
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Whether what lies between the memory and its guard pages is untouched.
    pub(super) fn margins_whole(&self) -> bool {
        let back = self.bytes.next_multiple_of(256) - self.bytes;
        // SAFETY: `front` bytes before the beginning and the rest of the last 256 belong to the mapping; only a faulty
        // kernel writes there, and then any value read will do.
        let (front, back) = unsafe {
            let front = std::slice::from_raw_parts(self.begin.sub(self.front), self.front);
            (front, std::slice::from_raw_parts(self.begin.add(self.bytes), back))
        };
        front.iter().chain(back).all(|&byte| byte == 0xff)
    }

    /// The address of `bytes` bytes from `at` on, which must lie inside.
    fn part(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "{bytes} bytes at {at} of {}", self.bytes);
        // SAFETY: inside the mapping, or its end.
        unsafe { self.begin.add(at) }
    }

    /// Writes `bytes` at `at`.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.part(at, bytes.len());
        // SAFETY: the range lies in the mapping; `bytes` is memory of the host.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads `bytes` bytes from `at` on.
    pub(super) fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        let from = self.part(at, bytes);
        let mut out = vec![0; bytes];
        // SAFETY: the range lies in the mapping; `out` is as long.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), bytes) };
        out
    }

    /// Copies `bytes` bytes from `from` of another, or the same, to `to` of this.
    pub(super) fn copy(&self, to: usize, other: &Mapping, from: usize, bytes: usize) {
        let (from, to) = (other.part(from, bytes), self.part(to, bytes));
        // SAFETY: both ranges lie in their mappings; they may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
    }

    /// Writes zeros.
    pub(super) fn clear(&self, at: usize, bytes: usize) {
        let at = self.part(at, bytes);
        // SAFETY: the range lies in the mapping.
        unsafe { std::ptr::write_bytes(at, 0, bytes) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by the same library's `emulated_map` with the same count, unmapped once.
        unsafe { (self.core.unmap)(self.begin, self.bytes) };
    }
}

/// Lets a fault inside a kernel say which, from now on.
pub(super) fn catch_faults() {
    static ONCE: Once = Once::new();
    // SAFETY: installs signal handlers that call what was installed before for every fault outside a kernel.
    ONCE.call_once(|| unsafe { (BUILT_IN.catch_faults)() });
}

/// Whether this processor has what the kernels were compiled with.
pub(super) fn processor_fits() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return true;
}
