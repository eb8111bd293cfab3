//! What the pool and its window promise.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use drt_runtime::{CancelToken, OrderedWindow, PoolError, WorkerPool};

#[test]
fn a_pool_of_no_threads_is_refused() {
    assert_eq!(WorkerPool::new(0).unwrap_err(), PoolError::NoWorkers);
}

#[test]
fn exactly_num_workers_jobs_run_at_once() {
    let pool = WorkerPool::new(3).unwrap();
    // Three jobs that wait for each other can only end when three threads run them.
    let barrier = Arc::new(Barrier::new(3));
    let handles: Vec<_> = (0..3)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            pool.submit(move || {
                barrier.wait();
                thread::current().name().map(str::to_owned)
            })
            .unwrap()
        })
        .collect();
    let names: BTreeSet<_> = handles.into_iter().map(|handle| handle.wait().unwrap()).collect();
    assert_eq!(names.len(), 3);
    assert_eq!(pool.num_workers(), 3);
}

#[test]
fn results_come_in_submission_order_though_jobs_end_in_another() {
    let pool = Arc::new(WorkerPool::new(4).unwrap());
    let mut window = OrderedWindow::new(pool);
    for n in 0..40u64 {
        window
            .submit(move || {
                thread::sleep(Duration::from_millis(if n % 4 == 0 { 5 } else { 0 }));
                n
            })
            .unwrap();
    }
    let mut taken = Vec::new();
    while let Some(result) = window.next() {
        taken.push(result.unwrap());
    }
    assert_eq!(taken, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_panicking_job_is_an_error_and_its_thread_lives_on() {
    let pool = WorkerPool::new(1).unwrap();
    let error = pool.submit(|| -> u32 { panic!("broken on purpose") }).unwrap().wait().unwrap_err();
    assert_eq!(error, PoolError::JobPanicked { message: "broken on purpose".into() });
    pool.spawn(|| panic!("nobody waits for this one")).unwrap();
    assert_eq!(pool.submit(|| 7).unwrap().wait(), Ok(7));
}

#[test]
fn a_slow_job_times_out_and_can_be_waited_for_again() {
    let pool = Arc::new(WorkerPool::new(1).unwrap());
    let release = Arc::new(Barrier::new(2));
    let held = Arc::clone(&release);
    let mut window = OrderedWindow::new(pool);
    window
        .submit(move || {
            held.wait();
            1
        })
        .unwrap();
    assert!(window.next_timeout(Duration::from_millis(1)).is_none());
    assert_eq!(window.len(), 1);
    release.wait();
    assert_eq!(window.next(), Some(Ok(1)));
    assert!(window.is_empty() && window.next().is_none());
}

#[test]
fn queued_jobs_still_run_after_the_pool_is_dropped() {
    let done = Arc::new(AtomicUsize::new(0));
    let pool = WorkerPool::new(1).unwrap();
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let done = Arc::clone(&done);
            pool.submit(move || done.fetch_add(1, Ordering::SeqCst)).unwrap()
        })
        .collect();
    drop(pool);
    for handle in handles {
        handle.wait().unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 10);
}

#[test]
fn a_cancel_token_is_shared_by_its_clones() {
    let token = CancelToken::new();
    let seen = token.clone();
    assert!(!seen.is_cancelled());
    token.cancel();
    assert!(seen.is_cancelled());
}

#[test]
fn an_offered_job_runs_on_a_thread_or_with_its_owner_and_only_once() {
    let pool = WorkerPool::new(1).unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let owner = thread::current().id();
    let offer = || {
        let runs = Arc::clone(&runs);
        pool.offer(move || {
            runs.fetch_add(1, Ordering::SeqCst);
            thread::current().id()
        })
    };
    // The only thread is busy: its owner runs the job at once, and the thread finds nothing left of it.
    let (begin, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begun, ended) = (Arc::clone(&begin), Arc::clone(&end));
    let busy = pool
        .submit(move || {
            begun.wait();
            ended.wait();
        })
        .unwrap();
    begin.wait();
    assert_eq!(offer().finish(Duration::ZERO), Some(Ok(owner)));
    // Nobody wants this one.
    drop(offer());
    end.wait();
    busy.wait().unwrap();
    pool.submit(|| ()).unwrap().wait().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // A thread that is free takes it before its owner comes.
    let job = offer();
    while runs.load(Ordering::SeqCst) == 1 {
        thread::yield_now();
    }
    let ran_on = job.finish(Duration::from_secs(60)).unwrap().unwrap();
    assert_ne!(ran_on, owner);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn an_offered_job_that_runs_long_can_be_waited_for_in_steps() {
    let pool = WorkerPool::new(1).unwrap();
    let (begin, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begun, ended) = (Arc::clone(&begin), Arc::clone(&end));
    let job = pool.offer(move || {
        begun.wait();
        ended.wait();
        5
    });
    begin.wait();
    assert_eq!(job.finish(Duration::from_millis(1)), None);
    end.wait();
    assert_eq!(job.finish(Duration::from_secs(60)), Some(Ok(5)));
}

#[test]
fn an_offered_job_that_panics_is_an_error_wherever_it_ran() {
    let pool = WorkerPool::new(1).unwrap();
    for _ in 0..20 {
        let outcome = pool.offer(|| -> u32 { panic!("broken on purpose") }).finish(Duration::from_secs(60));
        assert_eq!(outcome, Some(Err(PoolError::JobPanicked { message: "broken on purpose".into() })));
    }
    assert_eq!(pool.submit(|| 7).unwrap().wait(), Ok(7));
}
