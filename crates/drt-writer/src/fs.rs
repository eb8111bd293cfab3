//! The few file-system verbs that writing a cache takes, so that tests can stop after any of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// A file being written: append only, then made durable.
pub trait CacheFile: Write + Send {
    /// Wait until the file's bytes are on the disk.
    ///
    /// # Errors
    /// The file system's.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system as the writer sees it. [`StdFs`] performs the verbs; a test may fail or stop at any of them.
pub trait CacheFs: Send + Sync {
    /// Make a folder and those above it; one that exists is fine.
    ///
    /// # Errors
    /// The file system's.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Make a folder that must not exist.
    ///
    /// # Errors
    /// The file system's.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Make a file that must not exist.
    ///
    /// # Errors
    /// The file system's.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn CacheFile>>;
    /// Make a folder's list of names durable.
    ///
    /// # Errors
    /// The file system's.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Give `from` the name `to` in one step; fails when `to` exists (an empty folder may be replaced where the file
    /// system has no exclusive rename).
    ///
    /// # Errors
    /// The file system's; `AlreadyExists` or `DirectoryNotEmpty` when `to` exists.
    fn rename_exclusive(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Let two paths of any kind exchange their names in one step.
    ///
    /// # Errors
    /// The file system's; `Unsupported` when it cannot do that, `NotFound` when one of them is not there.
    fn exchange(&self, first: &Path, second: &Path) -> io::Result<()>;
    /// Give the file `from` the name `to` in one step; a file that has it is replaced.
    ///
    /// # Errors
    /// The file system's.
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Remove a file.
    ///
    /// # Errors
    /// The file system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Remove a folder and everything in it.
    ///
    /// # Errors
    /// The file system's.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Is anything at the path, a dangling link included?
    ///
    /// # Errors
    /// The file system's.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdFs;

struct StdFile(File);

impl Write for StdFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CacheFile for StdFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl CacheFs for StdFs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn CacheFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(StdFile(file)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename_exclusive(&self, from: &Path, to: &Path) -> io::Result<()> {
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems have no exclusive rename. An ordinary one onto a folder with anything in it fails too,
            // so what could still be replaced is an empty folder.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                if self.exists(to)? {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(from, to)
            }
            outcome => outcome.map_err(io::Error::from),
        }
    }

    fn exchange(&self, first: &Path, second: &Path) -> io::Result<()> {
        use rustix::io::Errno;
        match renameat_with(CWD, first, CWD, second, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(io::ErrorKind::Unsupported.into()),
            outcome => outcome.map_err(io::Error::from),
        }
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
