//! One line on standard error for each request.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::options::LogFormat;

/// A request that was answered.
pub struct Entry<'a> {
    /// The id that the response carries.
    pub id: &'a str,
    /// The other side of the connection.
    pub peer: Option<SocketAddr>,
    /// The method.
    pub method: &'a str,
    /// The path without its query, which may hold secrets.
    pub path: &'a str,
    /// The status.
    pub status: u16,
    /// Until the head of the response, and until its end or the client's.
    pub times: (Duration, Duration),
    /// Bytes of the body.
    pub bytes: u64,
    /// Whether the body was sent to its end.
    pub complete: bool,
}

impl Entry<'_> {
    /// Writes the line. A closed standard error is no reason to fail.
    pub fn write(&self, format: LogFormat) {
        let line = match format {
            LogFormat::Off => return,
            LogFormat::Text => self.text(),
            LogFormat::Json => self.json(),
        };
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn text(&self) -> String {
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        format!(
            "{} {peer} {} {} {} {:.1} ms {} B{} {}\n",
            Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ"),
            self.method,
            self.path.escape_debug(),
            self.status,
            self.times.1.as_secs_f64() * 1e3,
            self.bytes,
            if self.complete { "" } else { " broken off" },
            self.id,
        )
    }

    fn json(&self) -> String {
        let entry = json!({
            "time": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            "id": self.id,
            "peer": self.peer.map(|peer| peer.to_string()),
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "head_ms": self.times.0.as_secs_f64() * 1e3,
            "total_ms": self.times.1.as_secs_f64() * 1e3,
            "bytes": self.bytes,
            "complete": self.complete,
        });
        format!("{entry}\n")
    }
}
