//! Who may ask: keys, and which hosts and origins a browser may come from.

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::error::{ApiError, Result};

/// The keys that open the server. Only their digests are kept.
#[derive(Clone, Default)]
pub struct Keys(Vec<[u8; 32]>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// Keys as they are typed. Empty ones are left out.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Keys {
        Keys(keys.into_iter().filter(|key| !key.is_empty()).map(digest).collect())
    }

    /// Whether there is no key at all, so that everybody may ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the key of a request: `Authorization: Bearer KEY`, the bare key there, or `X-Api-Key` without that header.
    ///
    /// # Errors
    /// 401 if there are keys and the request has none of them.
    pub fn check(&self, headers: &HeaderMap) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let given = match headers.get(AUTHORIZATION) {
            Some(value) => value.to_str().ok().map(bearer),
            None => headers.get("x-api-key").and_then(|value| value.to_str().ok()),
        };
        let digest = digest(given.unwrap_or_default());
        // Every key is compared whole, so that the time tells nothing.
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&digest));
        if found.into() { Ok(()) } else { Err(ApiError::unauthorized()) }
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The key in an `Authorization` header.
fn bearer(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => value.trim(),
    }
}

/// Refuses a `Host` that is a foreign name: a page could have had it resolved to this machine (DNS rebinding).
///
/// Addresses and `localhost` pass, since no page of another origin can have them, and so do the names in `allowed`.
///
/// # Errors
/// 403.
pub fn check_host(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<()> {
    let header = headers.get(HOST).map(|value| value.to_str().unwrap_or("?"));
    let Some(host) = uri.authority().map(|authority| authority.as_str()).or(header) else { return Ok(()) };
    let name = without_port(host);
    let is_address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    let is_local = name.eq_ignore_ascii_case("localhost");
    if is_address
        || is_local
        || allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(name))
    {
        return Ok(());
    }
    Err(ApiError::forbidden("the Host of the request is not allowed (--allowed-hosts names more)"))
}

/// Where a browser's request may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No browser, or a page of this server.
    Own,
    /// A page that `--cors-origin` names.
    Foreign,
}

/// Checks the `Origin` of a request, which browsers send with everything that could do harm.
///
/// # Errors
/// 403 for one that is neither this server nor among `allowed`.
pub fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<Origin> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(Origin::Own) };
    let origin = origin.to_str().unwrap_or("?");
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if host.is_some() && authority == host {
        return Ok(Origin::Own);
    }
    if allowed.iter().any(|allowed| allowed == "*" || allowed == origin) {
        return Ok(Origin::Foreign);
    }
    Err(ApiError::forbidden("the Origin of the request is not allowed (--cors-origin names more)"))
}

/// `localhost:8080` without the port; `[::1]:8080` keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|c| c.is_ascii_digit()) && (name.ends_with(']') || !name.contains(':')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn keys_come_in_either_header_and_whole() {
        let keys = Keys::new(["", "secret", "second"]);
        let passes = |pairs: &[(&'static str, &str)]| keys.check(&headers(pairs)).is_ok();
        assert!(passes(&[("authorization", "Bearer secret")]));
        assert!(passes(&[("authorization", "bearer  second ")]));
        assert!(passes(&[("authorization", "secret")]));
        assert!(passes(&[("x-api-key", "secret")]));
        assert!(!passes(&[("authorization", "Bearer secre")]));
        assert!(!passes(&[("authorization", "Bearer ")]));
        assert!(!passes(&[("authorization", "Bearer wrong"), ("x-api-key", "secret")]));
        assert!(!passes(&[]));
        assert!(Keys::new([""]).check(&headers(&[])).is_ok());
    }

    #[test]
    fn a_foreign_name_as_host_is_refused() {
        let allowed = ["models.example".to_owned()];
        let passes =
            |host: &str| check_host(&headers(&[("host", host)]), &Uri::from_static("/"), &allowed).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "::1",
            "10.0.0.1",
            "Models.Example:80",
        ] {
            assert!(passes(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1]x:80"] {
            assert!(!passes(host), "{host}");
        }
        let absolute = Uri::from_static("http://evil.example/v1/models");
        assert!(check_host(&headers(&[("host", "localhost")]), &absolute, &allowed).is_err());
    }

    #[test]
    fn origins_are_our_own_or_named() {
        let allowed = ["https://app.example".to_owned()];
        let check = |origin: &str| {
            check_origin(&headers(&[("host", "localhost:8080"), ("origin", origin)]), &allowed)
        };
        assert_eq!(check("http://localhost:8080"), Ok(Origin::Own));
        assert_eq!(check("https://app.example"), Ok(Origin::Foreign));
        for origin in
            ["http://localhost:3000", "null", "https://evil.example", "https://app.example.evil.example"]
        {
            assert!(check(origin).is_err(), "{origin}");
        }
        assert_eq!(check_origin(&headers(&[]), &[]), Ok(Origin::Own));
    }
}
