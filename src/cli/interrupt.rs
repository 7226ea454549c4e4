//! Signals. Ctrl-C: the first one stops the generation, the next one the command.

use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qgguf_gguf::remove_temporaries;

/// Nothing to stop but the command itself.
const IDLE: u8 = 0;
/// A generation is running.
const RUNNING: u8 = 1;
/// The generation was asked to stop.
const STOPPING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// The number of Ctrl-C (SIGINT).
const CTRL_C: u8 = 2;

/// The signal that came last.
static SIGNAL: AtomicU8 = AtomicU8::new(CTRL_C);

/// Listens from now on for Ctrl-C, and for the signals that ask a command to end. Without a handler they simply end it.
pub fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        #[cfg(unix)]
        {
            use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
            use signal_hook::iterator::Signals;
            let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
            if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup)) {
                std::thread::spawn(move || signals.forever().for_each(|signal| received(signal as u8)));
            }
        }
        #[cfg(not(unix))]
        let _ = ctrlc::set_handler(|| received(CTRL_C));
    });
}

/// Whether the command was started so that it survives a signal, as by nohup.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    // Only Linux says so without unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn received(signal: u8) {
    SIGNAL.store(signal, Ordering::SeqCst);
    if STATE.compare_exchange(RUNNING, STOPPING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // What is written is put in its place when it is complete.
        let _none = remove_temporaries();
        std::process::exit(exit_code().into());
    }
}

/// What a shell says of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM.
pub fn exit_code() -> u8 {
    128 + SIGNAL.load(Ordering::SeqCst)
}

/// Whether the signal that stopped a generation was meant for the whole command, as all are but Ctrl-C.
pub fn is_to_end() -> bool {
    SIGNAL.load(Ordering::SeqCst) != CTRL_C
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
