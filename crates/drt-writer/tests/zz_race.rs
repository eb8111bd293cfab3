mod support;
use drt_format::CompressionAlgo;
use drt_writer::{CacheWriter, Payload};
use std::sync::Arc;
use support::fault_fs::{Fault, FaultFs};
use support::{config, exists, pool};

#[test]
fn race() {
    let pool = pool(4);
    for _ in 0..6 {
        std::thread::spawn(|| {
            let mut x = 0u64;
            loop {
                x = std::hint::black_box(x.wrapping_mul(3) + 1);
            }
        });
    }
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = |fault: Fault, n: usize| {
        let fs = FaultFs::new(fault);
        let name = format!("c{n}");
        let mut w = CacheWriter::create_on(
            Arc::new(fs.clone()),
            Arc::clone(&pool),
            base.path(),
            &name,
            config(1 << 20, CompressionAlgo::None),
        )
        .unwrap();
        w.push(Payload::Copy(b"abc"), &[]).unwrap();
        let out = w.finish(&mut || false);
        let there = exists(&base.path().join(&name));
        let _ = std::fs::remove_dir_all(base.path().join(&name));
        (out, there, fs.steps())
    };
    let (_, _, steps) = run(Fault::Never, 0);
    let sync = steps.iter().position(|s| s.0 == "sync").unwrap();
    eprintln!("{:?}", steps.iter().map(|s| s.0).collect::<Vec<_>>());
    let mut bad = 0;
    let t = std::time::Instant::now();
    let mut n = 0;
    while t.elapsed().as_secs() < 40 {
        n += 1;
        let (out, there, _) = run(Fault::Once(sync), n);
        if out.is_ok() || there {
            bad += 1;
        }
    }
    eprintln!("sync failure lost in {bad} of {n}");
}
