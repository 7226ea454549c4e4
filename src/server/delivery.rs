//! How a client wants an answer delivered: whole or in pieces, and what goes along with it.

use std::time::Duration;

use super::error::Result;
use super::fields::Fields;
use super::state::App;

/// How an answer is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// In pieces.
    pub stream: bool,
    /// A last piece tells the usage.
    pub include_usage: bool,
    /// Every piece tells the times so far.
    pub timings_per_token: bool,
    /// Pieces tell how far the prompt is.
    pub return_progress: bool,
    /// The ids of the tokens go along.
    pub return_tokens: bool,
    /// Silence after which a sign of life is sent.
    pub ping: Option<Duration>,
}

impl Delivery {
    /// Takes the fields about delivery.
    ///
    /// # Errors
    /// One of the wrong type.
    pub fn read(fields: &mut Fields, app: &App) -> Result<Delivery> {
        let mut flag = |name: &str| -> Result<bool> { Ok(fields.take(name)?.unwrap_or(false)) };
        let stream = flag("stream")?;
        let timings_per_token = flag("timings_per_token")?;
        let return_progress = flag("return_progress")?;
        let return_tokens = flag("return_tokens")?;
        let include_usage = match fields.object("stream_options")? {
            Some(mut options) => options.take("include_usage")?.unwrap_or(false),
            None => false,
        };
        let ping = match fields.integer("sse_ping_interval", -1, 3600)? {
            None => app.options.ping,
            Some(seconds) => u64::try_from(seconds).ok().filter(|&n| n > 0).map(Duration::from_secs),
        };
        Ok(Delivery { stream, include_usage, timings_per_token, return_progress, return_tokens, ping })
    }
}
