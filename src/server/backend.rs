//! What the server needs of an engine.

use crate::engine::service::{Request, Service, Stats, SubmitError, Ticket};

/// Evaluates requests. The engine's service is one; tests have one that answers from a script.
pub trait Backend: Send + Sync {
    /// Positions that a sequence may hold, prompt and answer together.
    fn n_ctx(&self) -> usize;

    /// Queues a request. Its events go to its sink.
    ///
    /// # Errors
    /// A prompt that can never be evaluated, a full queue, or a service that is stopping.
    fn submit(&self, request: Request) -> Result<Box<dyn Running>, SubmitError>;

    /// What is going on.
    fn stats(&self) -> Stats;

    /// Takes no new requests from now on; those that run go on.
    fn drain(&self);

    /// Whether nothing runs and nothing waits.
    fn is_idle(&self) -> bool;
}

/// A request that was taken.
pub trait Running: Send + Sync {
    /// Ends it and frees what it holds. Nothing happens if it has ended.
    fn cancel(&self);
}

impl Running for Ticket {
    fn cancel(&self) {
        Ticket::cancel(self);
    }
}

impl Backend for Service {
    fn n_ctx(&self) -> usize {
        Service::n_ctx(self)
    }

    fn submit(&self, request: Request) -> Result<Box<dyn Running>, SubmitError> {
        Ok(Box::new(Service::submit(self, request)?))
    }

    fn stats(&self) -> Stats {
        Service::stats(self)
    }

    fn drain(&self) {
        Service::drain(self);
    }

    fn is_idle(&self) -> bool {
        Service::is_idle(self)
    }
}
