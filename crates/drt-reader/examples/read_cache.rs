//! Show what is in some caches: their columns, a few samples, and how fast a shuffled epoch of them is.
//!
//! ```text
//! cargo run --release --example read_cache -- CACHE...
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use drt_reader::{CachedDataset, ReaderConfig};
use drt_runtime::WorkerPool;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let pool = Arc::new(WorkerPool::new(2)?);
    let dataset = CachedDataset::open(pool, &paths, ReaderConfig::new(42))?;

    for cache in dataset.catalog().caches() {
        println!("{}: cache_id {}, {} samples", cache.path().display(), cache.id(), cache.num_samples());
    }
    for field in dataset.schema().fields() {
        println!("  {}: {}", field.name, field.kind);
    }

    // The first samples of a shuffled window; the rest of the window is left.
    for sample in dataset.iter()?.take(3) {
        let sample = sample?;
        println!(
            "({}, {}) has {} bytes and {:?}",
            sample.cache_id,
            sample.sample_id,
            sample.data.len(),
            sample.metadata
        );
    }

    // A reader of many samples takes them in blocks, and copies payloads to where it wants them.
    let began = Instant::now();
    let mut samples = dataset.iter()?;
    let mut block = samples.empty_block();
    let (mut num_samples, mut num_bytes, mut payload) = (0u64, 0u64, Vec::new());
    while samples.next_block(&mut block, &mut || false)? {
        for at in 0..block.len() {
            let sample = block.sample(at)?;
            payload.resize(sample.payload_len(), 0);
            sample.copy_payload(&mut payload)?;
            num_samples += 1;
            num_bytes += payload.len() as u64;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{num_samples} samples, {:.1} MB in {:.1} ms: {:.0} samples/s",
        num_bytes as f64 / 1e6,
        seconds * 1e3,
        num_samples as f64 / seconds
    );
    Ok(())
}
