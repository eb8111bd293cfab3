use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a wait lasts before its owner looks whether it should stop.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Clone, Copy)]
struct Load {
    tasks: usize,
    bytes: usize,
}

/// How much may be inside before more is let in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) tasks: usize,
    pub(crate) bytes: usize,
}

impl Limits {
    /// Nothing at all.
    pub(crate) const EMPTY: Self = Self { tasks: 1, bytes: 0 };
}

/// Counts what is on its way, so that the thread that pulls can wait for less of it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    load: Mutex<Load>,
    changed: Condvar,
}

impl Gate {
    /// Count a task until the pass is dropped.
    pub(crate) fn enter(self: &Arc<Self>, bytes: usize) -> Pass {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.tasks += 1;
        load.bytes += bytes;
        Pass { gate: Arc::clone(self), bytes }
    }

    /// Wait until there is less inside than the limits say; false when `give_up` said so first.
    ///
    /// An empty gate is open, whatever the limits.
    pub(crate) fn wait_below(&self, limits: Limits, give_up: &mut dyn FnMut() -> bool) -> bool {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        while load.tasks > 0 && (load.tasks >= limits.tasks || load.bytes >= limits.bytes) {
            let (next, timeout) = self.changed.wait_timeout(load, STEP).unwrap_or_else(PoisonError::into_inner);
            load = next;
            if timeout.timed_out() {
                drop(load);
                if give_up() {
                    return false;
                }
                load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        true
    }
}

/// One task inside the gate.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut load = self.gate.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.tasks -= 1;
        load.bytes -= self.bytes;
        self.gate.changed.notify_all();
    }
}
