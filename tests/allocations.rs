//! A token costs no allocation. In a binary of its own, because it counts those of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations during 60 tokens of a session that holds 20.
fn allocations(session: &mut Session) -> usize {
    session.truncate(20);
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for token in 0..60 {
        session.eval(&[token]).expect("room for a token");
    }
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

#[test]
fn a_token_costs_no_allocation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf");
    let model =
        Arc::new(Model::open(path, &ModelOptions::default()).expect("the model that the project ships"));
    for n_threads in [1, 2] {
        let options = EngineOptions { n_threads, ..EngineOptions::default() };
        let mut session = Session::new(model.clone(), None, &options).expect("a session");
        // Caches grow by chunks of positions and buffers with the largest batch: neither is per token.
        session.eval(&[1; 20]).expect("room for the prompt");
        session.eval(&[2]).expect("room for a token");
        // A worker of the team takes its memory with its first task, which a busy machine may delay.
        let rounds = if n_threads == 1 { 1 } else { 50 };
        let counts: Vec<usize> = (0..rounds).map(|_| allocations(&mut session)).collect();
        assert!(counts.contains(&0), "{n_threads} threads: {counts:?}");
    }
}
