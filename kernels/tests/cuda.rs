//! The driver of cards, on a driver without cards (cuda/driver.c) that does its work as late as it may.
#![cfg(feature = "cuda")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kernels::cuda::{self, Compiler, CudaDevice};
use kernels::{Address, Allocation, Arg, Driver, Error, Grid, Kernel};
use libloading::Library;

const ARGUMENTS: Kernel = Kernel { file: "probe", variant: "1", name: "arguments" };

/// The stand-in, and its files' folder.
struct Fake {
    library: Library,
    folder: tempfile::TempDir,
}

impl Fake {
    /// Compiles it and opens it under the name that the program looks for; `None` if there is no C compiler.
    fn build() -> Option<Fake> {
        let folder = tempfile::tempdir().unwrap();
        let (file, text) =
            (folder.path().join("libnvrtc.so"), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/driver.c"));
        let flags = ["-shared", "-fPIC", "-w", "-O1", "-Wl,-soname,libcuda.so", "-o"];
        let built = Command::new("cc").args(flags).arg(&file).arg(text).status();
        if !built.is_ok_and(|status| status.success()) {
            return None;
        }
        let library = unsafe { Library::new(&file) }.unwrap();
        Some(Fake { library, folder })
    }

    fn say<T>(&self, function: &str, value: T) {
        unsafe { self.library.get::<unsafe extern "C" fn(T)>(function.as_bytes()).unwrap()(value) }
    }

    fn number(&self, function: &str) -> c_int {
        unsafe { self.library.get::<unsafe extern "C" fn() -> c_int>(function.as_bytes()).unwrap()() }
    }

    fn text(&self, function: &str) -> String {
        unsafe {
            let text = self.library.get::<unsafe extern "C" fn() -> *const c_char>(function.as_bytes()).unwrap()();
            CStr::from_ptr(text).to_str().unwrap().to_owned()
        }
    }

    /// From now on a call fails.
    fn fail(&self, call: &str, code: c_int) {
        let call = CString::new(call).unwrap();
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char, c_int)>(b"fake_fail").unwrap()(call.as_ptr(), code);
        }
    }

    fn compiler(&self) -> Compiler {
        Compiler::new(Some(self.folder.path().join("libnvrtc.so")), None)
    }

    fn open(&self, ordinal: usize) -> CudaDevice {
        cuda::open(ordinal, &self.compiler()).unwrap()
    }
}

/// The stand-in, for one test at a time, as it is when nobody has said anything to it.
fn fake() -> Option<MutexGuard<'static, Fake>> {
    static FAKE: OnceLock<Option<Mutex<Fake>>> = OnceLock::new();
    let Some(fake) = FAKE.get_or_init(|| Fake::build().map(Mutex::new)) else {
        println!("skipped: no C compiler `cc` to make a driver of");
        return None;
    };
    let fake = fake.lock().unwrap_or_else(PoisonError::into_inner);
    fake.fail("", 0);
    fake.say::<c_int>("fake_eager", 0);
    fake.say::<c_int>("fake_peers", 0);
    fake.say::<usize>("fake_memory", 1 << 30);
    assert_eq!(fake.number("fake_alive"), 0, "the last test left something");
    Some(fake)
}

/// Nothing was used wrongly and nothing is left.
fn settled(fake: &Fake) {
    assert_eq!(fake.text("fake_complaint"), "");
    assert_eq!(fake.number("fake_alive"), 0, "contexts, streams, modules and memory are given back");
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn read(device: &CudaDevice, from: Address, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.download(from, &mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_come_back_as_they_went_whatever_their_number() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    for len in [0, 1, 255, 256, 4 << 20, (4 << 20) + 1, (23 << 20) + 7] {
        let sent = bytes(len, len as u32);
        let memory = device.allocate(len).unwrap();
        device.upload(memory.at, &sent).unwrap();
        assert!(read(&device, memory.at, len) == sent, "{len}");
    }
    drop(device);
    settled(&fake);
}

#[test]
fn uploads_may_be_changed_at_once_however_many_wait() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    let mut buffer = vec![0; 100_000];
    let memory: Vec<Allocation> = (0..300).map(|_| device.allocate(buffer.len()).unwrap()).collect();
    for (i, piece) in memory.iter().enumerate() {
        buffer.fill(i as u8);
        device.upload(piece.at, &buffer).unwrap();
    }
    for (i, piece) in memory.iter().enumerate() {
        buffer.fill(i as u8);
        assert!(read(&device, piece.at, buffer.len()) == buffer, "upload {i}");
    }
    drop((memory, device));
    settled(&fake);
}

#[test]
fn copies_and_zeros_keep_the_streams_order() {
    let Some(fake) = fake() else { return };
    let device = fake.open(1);
    let (a, b) = (device.allocate(1000).unwrap(), device.allocate(1000).unwrap());
    let sent = bytes(1000, 3);
    device.upload(a.at, &sent).unwrap();
    device.copy(a.at, b.at, 1000).unwrap();
    device.clear(a.at + 10, 20).unwrap();
    device.copy(a.at, b.at + 500, 500).unwrap();
    device.copy(0, 0, 0).unwrap();
    device.clear(0, 0).unwrap();
    let mut expected = sent.clone();
    expected[500..].copy_from_slice(&sent[..500]);
    expected[510..530].fill(0);
    assert!(read(&device, b.at, 1000) == expected);
    let from = device.record().unwrap();
    device.clear(a.at, 1).unwrap();
    let to = device.record().unwrap();
    assert_eq!(device.elapsed(&from, &to).unwrap(), 1e-3);
    drop((a, b, from, to, device));
    settled(&fake);
}

/// Passes many rows to and fro between two devices, overwriting what was passed as early as events allow.
fn pass_rows(fake: &Fake, a: &CudaDevice, b: &CudaDevice) {
    let lengths = [1, 8192, 256 << 10, (256 << 10) + 1, 3 << 20, 777_777];
    let most = 3 << 20;
    let (from, to) = (a.allocate(most).unwrap(), b.allocate(most).unwrap());
    let mut kept = Vec::new();
    let mut read_already = b.record().unwrap();
    for (i, len) in lengths.into_iter().enumerate() {
        let sent = bytes(len, i as u32);
        a.wait(&read_already).unwrap();
        a.upload(from.at, &sent).unwrap();
        b.wait(&a.record().unwrap()).unwrap();
        b.receive(a, from.at, to.at, len).unwrap();
        read_already = b.record().unwrap();
        let copy = b.allocate(len).unwrap();
        b.copy(to.at, copy.at, len).unwrap();
        kept.push((copy, sent));
    }
    for (i, (copy, sent)) in kept.iter().enumerate() {
        assert!(read(b, copy.at, sent.len()) == *sent, "copy {i}");
    }
    assert_eq!(fake.text("fake_complaint"), "");
}

#[test]
fn rows_pass_between_devices_by_every_way() {
    let Some(fake) = fake() else { return };
    for (peers, ordinals) in [(0, [0, 1]), (1, [0, 1]), (2, [1, 0]), (0, [1, 1])] {
        for eager in [0, 1] {
            for host in [false, true] {
                fake.say::<c_int>("fake_peers", peers);
                let [a, b] = ordinals.map(|ordinal| fake.open(ordinal));
                let b = if host { b.through_host() } else { b };
                // The streams that copy out are made by the first copy.
                fake.say::<c_int>("fake_eager", eager);
                pass_rows(&fake, &a, &b);
                fake.say::<c_int>("fake_eager", 0);
                drop((a, b));
                settled(&fake);
            }
        }
    }
}

#[test]
fn cards_that_hand_over_something_else_are_not_trusted() {
    let Some(fake) = fake() else { return };
    fake.say::<c_int>("fake_peers", 1);
    fake.say::<c_int>("fake_wrong_peers", 1);
    let [a, b] = [0, 1].map(|ordinal| fake.open(ordinal));
    pass_rows(&fake, &a, &b);
    fake.say::<c_int>("fake_wrong_peers", 0);
    drop((a, b));
    settled(&fake);
}

#[test]
fn memory_goes_back_behind_copies_for_a_device_that_was_lost() {
    let Some(fake) = fake() else { return };
    let [a, b] = [0, 1].map(|ordinal| fake.open(ordinal));
    let (from, to) = (a.allocate(1 << 20).unwrap(), b.allocate(1 << 20).unwrap());
    b.receive(&a, from.at, to.at, 1 << 20).unwrap();
    fake.fail("cuEventRecord", 719);
    assert!(b.record().is_err() && b.finish().is_err());
    assert_eq!(a.finish(), Ok(()), "the other one answers");
    drop((from, a));
    assert_eq!(fake.text("fake_complaint"), "");
    // It can give its own back only if it answers again, or with the process.
    fake.fail("", 0);
    drop((to, b));
    settled(&fake);
}

#[test]
fn a_device_receives_from_itself_and_from_no_other_kind() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let sent = bytes(64, 9);
    device.upload(a.at, &sent).unwrap();
    device.receive(&device, a.at, b.at, 64).unwrap();
    assert!(read(&device, b.at, 64) == sent);
    let other = kernels::Emulator::new(37, 0).unwrap();
    let Error(e) = device.receive(&other, 0, b.at, 64).unwrap_err();
    assert!(e.starts_with("cuda:0 (Tesla K80): ") && e.contains("another kind"), "{e}");
    let Error(e) = device.wait(&other.record().unwrap()).unwrap_err();
    assert!(e.contains("another kind"), "{e}");
    drop((a, b, device));
    settled(&fake);
}

#[test]
fn memory_is_cut_from_slabs_and_given_back() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    let before = fake.number("fake_allocations");
    let (free, total) = device.memory().unwrap();
    assert_eq!((free, total), (1 << 30, 1 << 30));
    let mut pieces: Vec<_> = (0..1000).map(|i| device.allocate(100 * i).unwrap()).collect();
    assert_eq!(fake.number("fake_allocations") - before, 1);
    assert!(pieces.iter().all(|piece| piece.at.is_multiple_of(256)));
    pieces.sort_by_key(|piece| piece.at);
    assert!(pieces.windows(2).all(|two| two[0].at + two[0].len.max(1) as u64 <= two[1].at));
    let large = device.allocate(500 << 20).unwrap();
    drop(pieces);
    assert_eq!(device.memory().unwrap().0, 524 << 20);
    drop(large);
    assert_eq!(device.memory().unwrap().0, 1 << 30);
    let again: Vec<_> = (0..1000).map(|_| device.allocate(1000).unwrap()).collect();
    assert_eq!(fake.number("fake_allocations") - before, 2);
    // A piece may outlive the device.
    drop(device);
    drop(again);
    settled(&fake);
}

#[test]
fn matrices_of_most_of_a_slab_fill_the_memory() {
    let Some(fake) = fake() else { return };
    fake.say::<usize>("fake_memory", 800 << 20);
    let device = fake.open(0);
    let matrices: Vec<_> = (0..19).map(|_| device.allocate((39 << 20) + 5).unwrap()).collect();
    // What is left of their slabs holds what is small.
    let small: Vec<_> = (0..19).map(|_| device.allocate(1 << 19).unwrap()).collect();
    assert!(device.memory().unwrap().0 > 40 << 20);
    drop((matrices, small, device));
    settled(&fake);
}

#[test]
fn the_last_of_the_memory_is_used_and_more_is_refused_in_figures() {
    let Some(fake) = fake() else { return };
    fake.say::<usize>("fake_memory", 70 << 20);
    let device = fake.open(0);
    let _slab = device.allocate(64 << 20).unwrap();
    let _rest = device.allocate(6 << 20).unwrap();
    let Err(Error(e)) = device.allocate(33 << 20) else { panic!("there is no such memory") };
    assert!(e.starts_with("cuda:0 (Tesla K80): out of memory: 33 MiB") && e.contains("0 of 70 MiB are free"), "{e}");
}

#[test]
fn a_kernel_is_compiled_once_for_all_devices_and_gets_its_arguments() {
    let Some(fake) = fake() else { return };
    let compiler = fake.compiler();
    let devices: Vec<Arc<CudaDevice>> = (0..2).map(|i| Arc::new(cuda::open(i, &compiler).unwrap())).collect();
    let before = fake.number("fake_compilations");
    let other = Kernel { variant: "2", ..ARGUMENTS };
    std::thread::scope(|scope| {
        for device in &devices {
            scope.spawn(|| device.prepare(&[ARGUMENTS, other, ARGUMENTS]).unwrap());
        }
    });
    assert_eq!(fake.number("fake_compilations") - before, 2);
    let grid = Grid { blocks: [3, 2, 1], threads: [32, 4], shared: 48 };
    let kinds = CString::new("pfiip").unwrap();
    fake.say("fake_kinds", kinds.as_ptr());
    let args = [Arg::At(1 << 40), Arg::Float(0.5), Arg::Int(-7), Arg::Int(300), Arg::At(512)];
    devices[1].launch(&other, grid, &args).unwrap();
    assert!(!fake.text("fake_ran").contains("variant"), "it does not wait");
    devices[1].finish().unwrap();
    let expected = "probe.cu --gpu-architecture=sm_37 --std=c++17 --fmad=false --define-macro=VARIANT=2: arguments \
                    3x2x1 of 32x4x1 with 48: 1099511627776 0.5 -7 300 512\n";
    assert_eq!(fake.text("fake_ran"), expected);
    let Error(e) = devices[0].launch(&ARGUMENTS, grid, &args[1..]).unwrap_err();
    assert!(e.contains("probe.cu as 1: arguments: arguments are 'fiip', parameters 'pfiip'"), "{e}");
    drop(devices);
    settled(&fake);
}

#[test]
fn kernels_that_are_not_there_or_do_not_compile_are_named() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    let told = |kernel: Kernel| device.prepare(&[kernel]).unwrap_err().0;
    let e = told(Kernel { file: "absent", ..ARGUMENTS });
    assert!(e.starts_with("cuda:0 (Tesla K80): absent.cu: there is no such kernel file"), "{e}");
    let e = told(Kernel { name: "absent", ..ARGUMENTS });
    assert!(e.contains("there is no kernel probe.cu as 1: absent"), "{e}");
    let device = fake.open(0);
    fake.fail("load", 209);
    let e = device.prepare(&[ARGUMENTS]).unwrap_err().0;
    assert!(e.contains("CUDA_ERROR_NO_BINARY_FOR_GPU (209)") && e.ends_with("what the log says"), "{e}");
    assert!(e.contains("libnvrtc") && e.contains("probe.cu as 1"), "{e}");
    let device = fake.open(0);
    fake.fail("compile", 0);
    let e = device.prepare(&[ARGUMENTS]).unwrap_err().0;
    assert!(e.contains("NVRTC_ERROR_COMPILATION\nline 1: what is wrong") && e.contains("probe.cu"), "{e}");
}

#[test]
fn what_fails_is_said_with_the_device_the_call_and_what_to_do() {
    let Some(fake) = fake() else { return };
    let device = fake.open(0);
    fake.fail("cuStreamSynchronize", 719);
    let Error(e) = device.finish().unwrap_err();
    assert!(e.starts_with("cuda:0 (Tesla K80): cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): "), "{e}");
    assert!(e.contains("Xid") && e.contains("--device emu"), "{e}");
    fake.fail("cuMemHostAlloc", 2);
    let Err(Error(e)) = cuda::open(0, &fake.compiler()) else { panic!("it does not open") };
    assert!(e.contains("OUT_OF_MEMORY (2): the system gives no more memory"), "{e}");
    fake.fail("cuInit", 100);
    let Error(e) = cuda::count().unwrap_err();
    assert!(e.contains("CUDA_ERROR_NO_DEVICE (100): the driver is there but shows no card"), "{e}");
    fake.fail("version", 11020);
    let Error(e) = cuda::count().unwrap_err();
    assert!(e.contains("CUDA up to 11.2") && e.contains("470"), "{e}");
    // A code that this program was built before.
    fake.fail("cuCtxCreate", 46);
    let Err(Error(e)) = cuda::open(1, &fake.compiler()) else { panic!("it does not open") };
    assert!(
        e.contains("cuda:1 (Tesla K80): cuCtxCreate: an error that this driver has no name for (46): another"),
        "{e}"
    );
    fake.fail("", 0);
    let Err(Error(e)) = cuda::open(2, &fake.compiler()) else { panic!("there are two") };
    assert!(e.contains("cuda:2") && e.contains("cuda:0 to cuda:1"), "{e}");
    let Error(e) = fake.open(0).elapsed(&device.record().unwrap(), &fake.open(1).record().unwrap()).unwrap_err();
    assert!(e.contains("two devices"), "{e}");
}

#[test]
fn cards_are_listed() {
    let Some(fake) = fake() else { return };
    fake.say::<c_int>("fake_peers", 1);
    let cards = cuda::cards().unwrap();
    assert_eq!(cuda::version().unwrap(), (11, 4));
    let found: Vec<_> = cards.iter().map(|c| (c.ordinal, &*c.name, &*c.bus, c.architecture, c.memory)).collect();
    let expected = [(0, "Tesla K80", "0000:0a:00.0", 37, 1 << 30), (1, "Tesla K80", "0000:0b:00.0", 37, 1 << 30)];
    assert_eq!(found, expected);
    assert_eq!(cuda::peers(0, 1), Ok(true));
    let file: PathBuf = fake.folder.path().join("libnvrtc.so");
    let found = cuda::compiler_for(Some(&file), 37, (11, 4)).unwrap();
    assert_eq!((found.version, &*found.architectures, found.path), ((11, 8), [35, 37, 61, 80].as_slice(), file));
}
