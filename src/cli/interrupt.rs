//! Signals. Ctrl-C: the first one stops the generation, the next one the command.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing to stop but the command itself.
const IDLE: u8 = 0;
/// A generation is running.
const RUNNING: u8 = 1;
/// The generation was asked to stop.
const STOPPING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Listens for Ctrl-C from now on. Without a handler (there can be only one) it simply ends the command.
pub fn listen() {
    let _ = ctrlc::set_handler(|| {
        if STATE.compare_exchange(RUNNING, STOPPING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            // Nothing needs cleaning up: files are renamed into place when complete.
            std::process::exit(130);
        }
    });
}

/// From now on a file that would become larger than allowed (`ulimit -f`) is an error like a full disk, and not the end of the
/// command, which would leave half a file behind.
pub fn outlive_file_size_limit() {
    #[cfg(unix)]
    {
        use std::sync::atomic::AtomicBool;
        /// The write that failed says it, too; nobody looks here.
        static RECEIVED: AtomicBool = AtomicBool::new(false);
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, &RECEIVED);
    }
}

/// A generation during which Ctrl-C means "stop that".
pub struct Generation(());

impl Generation {
    /// It begins.
    pub fn begin() -> Generation {
        STATE.store(RUNNING, Ordering::SeqCst);
        Generation(())
    }

    /// Whether Ctrl-C was pressed since.
    pub fn interrupted(&self) -> bool {
        STATE.load(Ordering::SeqCst) == STOPPING
    }

    /// Waits for so long, or for Ctrl-C.
    pub fn sleep(&self, duration: Duration) {
        let start = Instant::now();
        while !self.interrupted() && start.elapsed() < duration {
            thread::sleep(Duration::from_millis(50).min(duration.saturating_sub(start.elapsed())));
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::SeqCst);
    }
}
