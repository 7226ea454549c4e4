//! Many requests at once: each gets the bits that it gets alone, whatever the company, and nothing is left behind.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use qgguf::engine::EngineOptions;
use qgguf::engine::service::{
    Event, Generate, Outcome, Pooling, Request, Service, ServiceOptions, SubmitError, Task, Ticket,
    TokenLogprobs,
};
use qgguf::generate::{GenerateOptions, StopReason, generate};
use qgguf::model::{Model, ModelOptions};
use qgguf::sampler::{Sampler, SamplerParams};
use qgguf::session::Session;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::tiny_model;

/// Longer than any request here takes on a busy machine; a service that never answers fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(120);

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u32() as usize % n
    }

    fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| 10 + self.below(3000) as u32).collect()
    }
}

fn model() -> Arc<Model> {
    Arc::new(Model::open(tiny_model(), &ModelOptions::default()).unwrap())
}

fn engine(n_threads: usize) -> EngineOptions {
    EngineOptions { n_threads, ..EngineOptions::default() }
}

/// A request and how it is sampled.
#[derive(Clone)]
struct Case {
    prompt: Vec<u32>,
    n_predict: usize,
    temperature: f32,
    seed: u64,
    n_logprobs: usize,
}

/// What came of it.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    tokens: Vec<u32>,
    text: String,
    logprobs: Vec<TokenLogprobs>,
    stop: Option<StopReason>,
}

impl Case {
    fn random(random: &mut Random, prefixes: &[Vec<u32>]) -> Case {
        let mut prompt = prefixes[random.below(prefixes.len())].clone();
        prompt.truncate(random.below(prompt.len()) + 1);
        let n = random.below(90);
        prompt.extend(random.tokens(n));
        Case {
            prompt,
            n_predict: random.below(25),
            temperature: [0.0, 0.8, 1.5][random.below(3)],
            seed: random.below(1000) as u64,
            n_logprobs: random.below(4),
        }
    }

    fn sampler(&self) -> Sampler {
        let params = SamplerParams { temperature: self.temperature, ..SamplerParams::default() };
        Sampler::new(params, Some(self.seed)).unwrap()
    }

    fn options(&self) -> GenerateOptions {
        GenerateOptions {
            n_predict: Some(self.n_predict),
            stop: vec!["and the".to_owned()],
            ..GenerateOptions::default()
        }
    }

    /// By a session that does nothing else.
    fn alone(&self, session: &mut Session) -> Answer {
        session.truncate(0);
        let mut sampler = self.sampler();
        let proceed = |_: &str| ControlFlow::Continue(());
        let generation = generate(session, &mut sampler, &self.prompt, &self.options(), proceed).unwrap();
        let mut all = self.prompt.clone();
        all.extend(&generation.tokens);
        session.truncate(0);
        let kernels = session.options().kernels;
        let mut logprobs = Vec::new();
        let mut each = |position: usize, logits: &[f32]| {
            if position + 1 >= self.prompt.len() && position + 1 < all.len() {
                logprobs.push(TokenLogprobs::new(kernels, logits, all[position + 1], self.n_logprobs));
            }
        };
        session.eval_all(&all, &mut each).unwrap();
        Answer { tokens: generation.tokens, text: generation.text, logprobs, stop: Some(generation.stop) }
    }

    fn submit(&self, service: &Service) -> Result<(Ticket, Receiver<Event>), SubmitError> {
        let (sender, events) = channel();
        let ticket = service.submit(Request {
            prompt: self.prompt.clone(),
            task: Task::Generate(Generate {
                sampler: self.sampler(),
                options: self.options(),
                constraint: None,
                n_logprobs: Some(self.n_logprobs),
                prompt_logprobs: false,
            }),
            cache_prompt: true,
            sink: Box::new(move |event| match sender.send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }),
        })?;
        Ok((ticket, events))
    }
}

/// Waits for the end of a request.
fn finish(events: &Receiver<Event>) -> (Answer, Outcome) {
    let mut answer = Answer::default();
    loop {
        match events.recv_timeout(PATIENCE).expect("a request that is not cancelled is finished") {
            Event::Token { token, text, logprobs } => {
                answer.tokens.push(token);
                answer.text += &text;
                answer.logprobs.extend(logprobs);
            }
            Event::Done(outcome) => {
                answer.text += &outcome.text;
                answer.stop = Some(outcome.stop.clone());
                return (answer, outcome);
            }
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
}

fn wait_until_idle(service: &Service) {
    let start = Instant::now();
    while !service.is_idle() {
        assert!(start.elapsed() < PATIENCE, "{:?}", service.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_request_gets_the_bits_it_gets_alone() {
    let model = model();
    let mut random = Random(ChaCha8Rng::from_seed([7; 32]));
    let prefixes: Vec<Vec<u32>> = [300, 200, 130, 20].into_iter().map(|n| random.tokens(n)).collect();
    let (mut n_parked, mut n_cached) = (0, 0);
    for mix in 0..200 {
        // Four to eight pages: less than the requests of a mix would like.
        let n_ctx = 512 + 128 * random.below(5);
        let service = ServiceOptions {
            engine: engine(1 + mix % 2),
            n_ctx: Some(n_ctx),
            n_parallel: 1 + random.below(6),
            n_batch: [1, 7, 64, 256][random.below(4)],
            n_queue: 64,
        };
        let service = Service::start(model.clone(), &service).unwrap();
        let mut session = Session::new(model.clone(), Some(service.n_ctx()), &engine(1)).unwrap();
        let mut open = Vec::new();
        for _ in 0..1 + random.below(8) {
            let case = Case::random(&mut random, &prefixes);
            let (ticket, events) = case.submit(&service).unwrap();
            match random.below(5) {
                0 => ticket.cancel(),
                // Whoever asked is gone.
                1 => drop(events),
                _ => open.push((case, events)),
            }
            if random.below(3) == 0 {
                std::thread::sleep(Duration::from_millis(random.below(20) as u64));
            }
        }
        for (case, events) in open {
            let (found, outcome) = finish(&events);
            assert_eq!(found, case.alone(&mut session), "mix {mix}, prompt of {}", case.prompt.len());
            assert_eq!((outcome.n_prompt, outcome.n_generated), (case.prompt.len(), found.tokens.len()));
        }
        wait_until_idle(&service);
        n_parked += service.stats().n_parked;
        n_cached += service.stats().n_cached;
    }
    assert!(n_parked > 0 && n_cached > 0, "{n_parked} parked, {n_cached} cached: the mixes are too tame");
}

#[test]
fn a_common_start_is_evaluated_and_kept_once() {
    let model = model();
    let options =
        ServiceOptions { engine: engine(1), n_ctx: Some(2048), n_parallel: 8, ..Default::default() };
    let service = Service::start(model, &options).unwrap();
    let mut random = Random(ChaCha8Rng::from_seed([8; 32]));
    let system = random.tokens(700);
    let case = |random: &mut Random| Case {
        prompt: [system.clone(), random.tokens(5)].concat(),
        n_predict: 4,
        temperature: 0.0,
        seed: 1,
        n_logprobs: 0,
    };
    // All at once: one of them evaluates what they have in common.
    let requests: Vec<_> = (0..8).map(|_| case(&mut random).submit(&service).unwrap().1).collect();
    let outcomes: Vec<Outcome> = requests.iter().map(|events| finish(events).1).collect();
    let cached: Vec<usize> = outcomes.iter().map(|outcome| outcome.n_cached).collect();
    assert_eq!((cached[0], &cached[1..]), (0, &[700; 7][..]));
    wait_until_idle(&service);
    // Five pages in common, and the rest of the sixth once for each.
    let stats = service.stats();
    let page = stats.cache_bytes / 16;
    assert!(stats.cache_bytes_in_use <= (5 + 8) * page, "{} of pages of {page}", stats.cache_bytes_in_use);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let model = model();
    let options = ServiceOptions {
        engine: engine(1),
        n_ctx: Some(256),
        n_parallel: 1,
        n_queue: 2,
        ..ServiceOptions::default()
    };
    let service = Service::start(model, &options).unwrap();
    let case = |prompt: Vec<u32>| Case { prompt, n_predict: 200, temperature: 0.0, seed: 1, n_logprobs: 0 };
    let refused = |prompt: Vec<u32>| case(prompt).submit(&service).unwrap_err().to_string();
    assert_eq!(refused(Vec::new()), "no tokens to evaluate: the prompt is empty");
    assert_eq!(refused(vec![1; 257]), "257 tokens do not fit the context of 256");
    assert_eq!(refused(vec![1, 4096]), "token id 4096 is outside the vocabulary of 4096");
    // One is worked on at most, two wait; of a hundred at once some are refused.
    let requests: Vec<_> = (0..100).map(|i| case(vec![10 + i; 20]).submit(&service)).collect();
    let full = requests.iter().filter(|request| request.is_err()).count();
    assert!(full > 0 && requests[0].is_ok());
    let error = requests.iter().find_map(|request| request.as_ref().err());
    assert_eq!(error.unwrap().to_string(), "the queue is full: 2 requests are waiting");
    service.drain();
    assert_eq!(case(vec![1]).submit(&service).unwrap_err(), SubmitError::Stopping);
    // What was accepted is finished.
    for (_, events) in requests.iter().flatten() {
        assert!(matches!(finish(events).0.stop, Some(_)));
    }
    wait_until_idle(&service);
}

#[test]
fn a_cancelled_request_frees_its_place_and_its_memory() {
    let service =
        ServiceOptions { engine: engine(1), n_ctx: Some(1024), n_parallel: 1, ..Default::default() };
    let service = Service::start(model(), &service).unwrap();
    let endless = Case { prompt: vec![10; 100], n_predict: 900, temperature: 0.0, seed: 1, n_logprobs: 0 };
    let (ticket, events) = endless.submit(&service).unwrap();
    // It is on its way.
    while !matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Token { .. }) {}
    let next = Case { prompt: vec![11; 10], n_predict: 2, ..endless };
    let (_, next) = next.submit(&service).unwrap();
    ticket.cancel();
    assert_eq!(finish(&next).0.tokens.len(), 2);
    wait_until_idle(&service);
    // The first one's sink is gone with it.
    assert!(events.iter().all(|event| !matches!(event, Event::Done(_))));
}

#[test]
fn prompts_have_log_probabilities_too() {
    let model = model();
    let service = ServiceOptions { engine: engine(1), n_ctx: Some(512), n_batch: 50, ..Default::default() };
    let service = Service::start(model.clone(), &service).unwrap();
    let prompt = Random(ChaCha8Rng::from_seed([9; 32])).tokens(90);
    let mut expected = Vec::new();
    let mut session = Session::new(model, None, &engine(1)).unwrap();
    let kernels = session.options().kernels;
    let each = |i: usize, logits: &[f32]| {
        if i + 1 < prompt.len() {
            expected.push(TokenLogprobs::new(kernels, logits, prompt[i + 1], 2));
        }
    };
    session.eval_all(&prompt, each).unwrap();
    let (sender, events) = channel();
    service
        .submit(Request {
            prompt: prompt.clone(),
            task: Task::Generate(Generate {
                sampler: Sampler::new(SamplerParams::greedy(), Some(1)).unwrap(),
                options: GenerateOptions { n_predict: Some(0), ..GenerateOptions::default() },
                constraint: None,
                n_logprobs: Some(2),
                prompt_logprobs: true,
            }),
            cache_prompt: true,
            sink: Box::new(move |event| {
                sender.send(event).unwrap();
                ControlFlow::Continue(())
            }),
        })
        .unwrap();
    let mut found = Vec::new();
    for event in events {
        match event {
            Event::PromptLogprobs(more) => found.extend(more),
            Event::Token { .. } | Event::Failed(_) => panic!("{event:?}"),
            _ => {}
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn vectors_do_not_depend_on_how_a_prompt_is_split() {
    let model = model();
    let prompt = Random(ChaCha8Rng::from_seed([10; 32])).tokens(75);
    let embed = |n_batch: usize, pooling: Pooling| {
        let service = ServiceOptions { engine: engine(1), n_ctx: Some(256), n_batch, ..Default::default() };
        let service = Service::start(model.clone(), &service).unwrap();
        let (sender, events) = channel();
        let sink = Box::new(move |event| {
            sender.send(event).unwrap();
            ControlFlow::Continue(())
        });
        let request =
            Request { prompt: prompt.clone(), task: Task::Embed(pooling), cache_prompt: true, sink };
        service.submit(request).unwrap();
        let vectors = events.iter().filter_map(|event| match event {
            Event::Embedding(vector) => Some(vector),
            _ => None,
        });
        vectors.collect::<Vec<_>>()
    };
    for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last] {
        let whole = embed(256, pooling);
        assert_eq!((whole.len(), whole[0].len()), (1, model.hparams().n_embd));
        assert!(whole[0].iter().all(|x| x.is_finite()) && whole[0].iter().any(|&x| x != 0.0));
        for n_batch in [1, 32] {
            assert_eq!(embed(n_batch, pooling), whole, "{pooling:?} {n_batch}");
        }
    }
    assert_ne!(embed(256, Pooling::Cls), embed(256, Pooling::Last));
}
