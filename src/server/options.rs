//! How a server is started.

use std::time::Duration;

use super::auth::Keys;
use super::limits::Limits;

/// Everything about a server but its models.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys that clients must have; none if empty.
    pub keys: Keys,
    /// Names that `Host` may have beside addresses and `localhost`; `*` for any.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may read answers; `*` for any.
    pub cors_origins: Vec<String>,
    /// What stands in front of every path, such as `/llm`.
    pub prefix: String,
    /// Bounds on requests.
    pub limits: Limits,
    /// Time for the head of a request, and between two requests on a connection.
    pub header_timeout: Duration,
    /// Time for a request's body, and for a client that does not read on.
    pub timeout: Duration,
    /// Silence in a stream after which a comment is sent; `None` for never.
    pub ping: Option<Duration>,
    /// Connections at once.
    pub connections: usize,
    /// How long running requests may go on after the server was asked to end.
    pub drain_timeout: Duration,
    /// What `/metrics` and `/slots` need to answer.
    pub endpoints: Endpoints,
    /// Whether a conversation that ends with an assistant's message is continued.
    pub prefill_assistant: bool,
    /// How requests are logged.
    pub log: LogFormat,
}

/// Routes that can be turned on and off.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints {
    /// `/metrics`
    pub metrics: bool,
    /// `/slots`
    pub slots: bool,
    /// The page at `/`.
    pub page: bool,
}

/// How requests are logged on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object on a line.
    Json,
    /// Not at all.
    Off,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keys: Keys::default(),
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            prefix: String::new(),
            limits: Limits::default(),
            header_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            ping: Some(Duration::from_secs(30)),
            connections: 2048,
            drain_timeout: Duration::from_secs(30),
            endpoints: Endpoints { metrics: false, slots: true, page: true },
            prefill_assistant: true,
            log: LogFormat::Text,
        }
    }
}
