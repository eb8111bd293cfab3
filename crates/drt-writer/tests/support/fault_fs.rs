//! A file system that counts its steps and refuses one of them, or all from one on.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use drt_writer::fs::{CacheFile, CacheFs, StdFs};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    Never,
    /// This step, counted from 0; a write keeps half of its bytes. Later steps work.
    Once(usize),
    /// This step and all later ones do nothing, as if the process had been killed or the disk pulled out.
    Stop(usize),
    /// This step panics.
    Panic(usize),
    /// This sync, counted from 0, of a file or folder lasts until the disk is released.
    Hang(usize),
}

/// What every step of one write was, with the path it was about.
pub(crate) type Log = Arc<Mutex<Vec<(&'static str, PathBuf)>>>;

#[derive(Clone)]
pub(crate) struct FaultFs {
    fault: Fault,
    next: Arc<AtomicUsize>,
    log: Log,
    open: Arc<OpenFiles>,
    /// Writes and syncs wait while this is true.
    held: Arc<(Mutex<bool>, Condvar)>,
    syncs: Arc<AtomicUsize>,
    disk: Arc<Disk>,
    without_exchange: bool,
}

#[derive(Default)]
struct Disk {
    hangs: AtomicBool,
    released: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct OpenFiles {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl FaultFs {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            fault,
            next: Arc::default(),
            log: Arc::default(),
            open: Arc::default(),
            held: Arc::default(),
            syncs: Arc::default(),
            disk: Arc::default(),
            without_exchange: false,
        }
    }

    /// The same, where two names cannot be exchanged in one step.
    pub(crate) fn without_exchange(mut self) -> Self {
        self.without_exchange = true;
        self
    }

    /// Let writes and syncs wait from now on, or wait no longer.
    pub(crate) fn hold(&self, hold: bool) {
        *self.held.0.lock().unwrap() = hold;
        self.held.1.notify_all();
    }

    /// Files that were open at one time at most.
    pub(crate) fn most_open_files(&self) -> usize {
        self.open.most.load(Ordering::SeqCst)
    }

    /// The steps so far.
    pub(crate) fn steps(&self) -> Vec<(&'static str, PathBuf)> {
        self.log.lock().unwrap().clone()
    }

    /// Has the disk come to the sync that lasts?
    pub(crate) fn hangs(&self) -> bool {
        self.disk.hangs.load(Ordering::SeqCst)
    }

    /// Let the sync that lasts end.
    pub(crate) fn release(&self) {
        *self.disk.released.lock().unwrap() = true;
        self.disk.changed.notify_all();
    }

    fn sync_step(&self, verb: &'static str, path: &Path) -> io::Result<()> {
        if self.fault == Fault::Hang(self.syncs.fetch_add(1, Ordering::SeqCst)) {
            self.disk.hangs.store(true, Ordering::SeqCst);
            let released = self.disk.released.lock().unwrap();
            drop(self.disk.changed.wait_while(released, |released| !*released).unwrap());
        }
        self.step(verb, path)
    }

    fn wait_while_held(&self) {
        let held = self.held.0.lock().unwrap();
        drop(self.held.1.wait_while(held, |held| *held).unwrap());
    }

    fn step(&self, verb: &'static str, path: &Path) -> io::Result<()> {
        let number = {
            let mut log = self.log.lock().unwrap();
            log.push((verb, path.to_owned()));
            self.next.fetch_add(1, Ordering::SeqCst)
        };
        match self.fault {
            Fault::Once(step) if step == number => Err(io::ErrorKind::StorageFull.into()),
            Fault::Stop(step) if step <= number => Err(io::ErrorKind::BrokenPipe.into()),
            Fault::Panic(step) if step == number => panic!("step {step} panics on purpose"),
            _ => Ok(()),
        }
    }
}

struct FaultFile {
    fs: FaultFs,
    path: PathBuf,
    file: Box<dyn CacheFile>,
}

impl Write for FaultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.fs.wait_while_held();
        if let Err(error) = self.fs.step("write", &self.path) {
            if matches!(self.fs.fault, Fault::Once(_)) {
                self.file.write_all(&bytes[..bytes.len() / 2])?;
            }
            return Err(error);
        }
        // Short writes are allowed, and whoever writes has to go on.
        self.file.write(&bytes[..bytes.len().min(1000)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl CacheFile for FaultFile {
    fn sync(&mut self) -> io::Result<()> {
        self.fs.wait_while_held();
        // What the disk does then is not what is tested, so it is spared.
        self.fs.sync_step("sync", &self.path)
    }
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        self.fs.open.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CacheFs for FaultFs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step("create_dir_all", path)?;
        StdFs.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step("create_dir", path)?;
        StdFs.create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn CacheFile>> {
        self.step("create_file", path)?;
        let file = StdFs.create_file(path)?;
        let now = self.open.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.open.most.fetch_max(now, Ordering::SeqCst);
        Ok(Box::new(FaultFile { fs: self.clone(), path: path.to_owned(), file }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.sync_step("sync_dir", path)
    }

    fn rename_exclusive(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename_exclusive", to)?;
        StdFs.rename_exclusive(from, to)
    }

    fn exchange(&self, first: &Path, second: &Path) -> io::Result<()> {
        self.step("exchange", second)?;
        if self.without_exchange { Err(io::ErrorKind::Unsupported.into()) } else { StdFs.exchange(first, second) }
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename_over", to)?;
        StdFs.rename_over(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step("remove_file", path)?;
        StdFs.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step("remove_dir_all", path)?;
        StdFs.remove_dir_all(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.step("exists", path)?;
        StdFs.exists(path)
    }
}
