//! Turn the files of a folder into a cache: one sample a file, its name, kind and length as metadata.
//!
//! ```text
//! cargo run --example write_cache -- FOLDER BASE
//! ```
//!
//! publishes `BASE/files`, which the reader's example `read_cache` shows.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::{CompressionAlgo, ShardCompression};
use drt_runtime::WorkerPool;
use drt_writer::progress::for_stderr;
use drt_writer::{CacheInput, CacheSource, OwnedValue, WriterConfig, write_cache};

/// The files directly in a folder, in the order of their names, so that the same folder gives the same cache.
struct Files {
    paths: std::vec::IntoIter<PathBuf>,
}

impl Files {
    fn of(folder: &Path) -> std::io::Result<Self> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(Self { paths: paths.into_iter() })
    }
}

impl CacheSource for Files {
    fn name(&self) -> &str {
        "files"
    }

    fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn Error + Send + Sync>> {
        let Some(path) = self.paths.next() else { return Ok(None) };
        let data = fs::read(&path)?;
        let text = |part: Option<&std::ffi::OsStr>| OwnedValue::String(part.unwrap_or_default().display().to_string());
        let metadata = vec![
            ("name".to_owned(), text(path.file_name())),
            ("kind".to_owned(), text(path.extension())),
            ("bytes".to_owned(), OwnedValue::Int(i64::try_from(data.len())?)),
        ];
        Ok(Some(CacheInput { data, metadata }))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder, base] = arguments.as_slice() else {
        return Err("usage: write_cache FOLDER BASE".into());
    };
    let pool = Arc::new(WorkerPool::new(2)?);
    let config = WriterConfig::new(64 << 20, ShardCompression::new(CompressionAlgo::Lz4, 1.0)?, 64)?;
    let progress = for_stderr(1);
    progress.source_started("files");
    let mut source = Files::of(Path::new(folder))?;
    let outcome = write_cache(&pool, &mut source, Path::new(base), &config, progress.as_ref());
    progress.source_finished(outcome.is_ok());
    println!("{}", outcome?.display());
    Ok(())
}
