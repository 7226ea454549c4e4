//! Connections: how many, how slow they may be, and how the server ends.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use super::options::Options;
use super::routes::router;
use super::state::App;

/// Bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// Between two tries to take a connection when the system has no more descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` is done; then running requests may finish within the drain timeout.
///
/// Returns whether all of them did.
///
/// # Errors
/// If the listener cannot be used.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> io::Result<bool> {
    let router = router(app.clone());
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(app.options.connections));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let place = tokio::select! {
            () = &mut shutdown => break,
            place = places.clone().acquire_owned() => place.map_err(io::Error::other)?,
        };
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // A connection that is gone already, or no descriptor left: others end in time.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        spawn(&app.options, &graceful, router.clone(), stream, peer, place);
    }
    drop(listener);
    app.drain();
    let drained = tokio::time::timeout(app.options.drain_timeout, graceful.shutdown()).await;
    Ok(drained.is_ok())
}

/// Serves one connection until it ends.
fn spawn(
    options: &Options,
    graceful: &GracefulShutdown,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    // Events are small, and each is to arrive at once.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(options.timeout));
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // What goes wrong on a connection is its client's business.
        let _ = connection.await;
        drop(place);
    });
}
