//! OpenAI's `/v1/completions`, with the legacy logprobs that evaluation tools read.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::super::delivery::Delivery;
use super::super::error::{ApiError, Result, Shape};
use super::super::fields::Fields;
use super::super::form::Form;
use super::super::job::Job;
use super::super::limits::{MAX_TOP_LOGPROBS, at_most};
use super::super::logprobs::Legacy;
use super::super::prompts::{self, Prompt};
use super::super::run::{Answer, Choice, Finish, Usage};
use super::super::settings::Settings;
use super::super::state::{App, Served};
use super::super::stream::{self, DONE, Writer};
use super::Head;
use crate::answer::Delta;
use crate::engine::service::TokenLogprobs;

/// Continues texts.
pub async fn completions(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Response> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let delivery = Delivery::read(&mut fields, &app)?;
    let head = Head::new(&app, &served, "cmpl-");
    let (run, shown) = app
        .prepare(move |app| {
            let (job, shown) = job(app, served, &mut fields)?;
            Ok((job.start(&app.metrics)?, shown))
        })
        .await?;
    if delivery.stream {
        let served = run.served().clone();
        let texts = (0..run.n_choices()).map(|i| Text::new(&shown, &served, i)).collect();
        let usage = Usage::default();
        return Ok(stream::respond(
            run,
            Chunks { head, served, delivery, shown, texts, usage },
            delivery.ping,
        ));
    }
    let served = run.served().clone();
    let choices = run.collect().await?;
    Ok(Json(whole(&head, &served, &shown, choices)?).into_response())
}

/// What is shown beside the generated text.
struct Shown {
    prompts: Vec<Prompt>,
    /// Answers to each prompt.
    n: usize,
    /// The prompt stands in front of its answers.
    echo: bool,
    /// Logprobs of how many tokens beside the drawn one; `None` for no logprobs.
    n_top: Option<usize>,
}

fn job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<(Job, Shown)> {
    let limits = &app.options.limits;
    let tokenizer = served.model.tokenizer();
    let prompt = fields.value("prompt").ok_or_else(|| fields.missing("prompt"))?;
    let prompts = prompts::read("prompt", prompt, limits.choices, tokenizer)?;
    fields.refuse_unless("suffix", |value| value == "")?;
    let n_top = fields.integer("logprobs", 0, MAX_TOP_LOGPROBS as i64)?.map(|n| n as usize);
    let echo = fields.take("echo")?.unwrap_or(false);
    let mut settings = Settings::read(fields, &served.defaults, tokenizer, limits.choices)?;
    at_most("n", limits.choices, settings.n.saturating_mul(prompts.len()), "answers")?;
    settings.logprobs = n_top;
    let form = Form::read_plain(fields, limits)?;
    let shown = Shown { n: settings.n, echo, n_top, prompts };
    let prompts = shown.prompts.iter().map(|prompt| prompt.tokens.clone()).collect();
    let prompt_logprobs = echo && n_top.is_some();
    Ok((Job { served, prompts, settings, form, prompt_logprobs }, shown))
}

/// What has been told of an answer: its logprobs tell where in the text each token begins.
struct Text {
    /// The prompt's first token if it is told: nobody knows its probability.
    first: Option<u32>,
    /// What stands in front and has not been told.
    echo: Option<String>,
    offset: usize,
}

impl Text {
    fn new(shown: &Shown, served: &Served, choice: usize) -> Text {
        let prompt = &shown.prompts[choice / shown.n];
        let text = prompt.text(served.model.tokenizer());
        if !shown.echo {
            return Text { first: None, echo: None, offset: text.chars().count() };
        }
        Text { first: prompt.tokens.first().copied(), echo: Some(text), offset: 0 }
    }

    /// The legacy logprobs of further tokens, and of the prompt's before them.
    fn logprobs(
        &mut self,
        shown: &Shown,
        served: &Served,
        prompt: &[TokenLogprobs],
        more: &[TokenLogprobs],
    ) -> Value {
        let Some(n_top) = shown.n_top else { return Value::Null };
        let tokenizer = served.model.tokenizer();
        let mut legacy = Legacy::at(self.offset);
        if let Some(first) = self.first.take() {
            legacy.unknown(tokenizer, first);
        }
        legacy.extend(tokenizer, prompt, n_top);
        legacy.extend(tokenizer, more, n_top);
        self.offset = legacy.length();
        legacy.json()
    }
}

fn choice(index: usize, text: &str, logprobs: Value, finish: Option<&Finish>) -> Value {
    json!({
        "text": text,
        "index": index,
        "logprobs": logprobs,
        "finish_reason": finish.map(Finish::reason),
    })
}

fn whole(head: &Head, served: &Served, shown: &Shown, choices: Vec<Choice>) -> Result<Map<String, Value>> {
    let mut objects = Vec::new();
    for (index, one) in choices.iter().enumerate() {
        let mut text = Text::new(shown, served, index);
        let logprobs = text.logprobs(shown, served, &one.prompt_logprobs, &one.logprobs);
        let whole = text.echo.take().unwrap_or_default() + &one.message().content;
        objects.push(choice(index, &whole, logprobs, Some(&one.finish)));
    }
    let mut answer = head.object("text_completion", objects);
    answer.insert("usage".to_owned(), Usage::total(&choices).json());
    if let Some(last) = choices.last() {
        answer.insert("timings".to_owned(), last.finish.timings.json());
    }
    Ok(answer)
}

/// The stream of chunks.
struct Chunks {
    head: Head,
    served: Arc<Served>,
    delivery: Delivery,
    shown: Shown,
    texts: Vec<Text>,
    usage: Usage,
}

impl Chunks {
    fn chunk(&self, choice: Value) -> Map<String, Value> {
        self.head.object("text_completion", vec![choice])
    }

    /// The prompt in front of an answer, once, and what is known of its logprobs, which may come bit by bit.
    fn echo(&mut self, index: usize, prompt: &[TokenLogprobs], out: &mut String) {
        let text = &mut self.texts[index];
        let echo = text.echo.take();
        if echo.is_none() && prompt.is_empty() {
            return;
        }
        let echo = echo.unwrap_or_default();
        let logprobs = text.logprobs(&self.shown, &self.served, prompt, &[]);
        stream::data(&self.chunk(choice(index, &echo, logprobs, None)).into(), out);
    }
}

impl Writer for Chunks {
    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { .. } => {}
            Answer::PromptLogprobs { choice, logprobs } => self.echo(choice, &logprobs, out),
            Answer::Piece(piece) => {
                let Delta::Content(text) = &piece.delta else { return };
                let index = piece.choice;
                self.echo(index, &[], out);
                let logprobs = self.texts[index].logprobs(&self.shown, &self.served, &[], &piece.logprobs);
                let mut chunk = self.chunk(choice(index, text, logprobs, None));
                if self.delivery.timings_per_token {
                    chunk.insert("timings".to_owned(), piece.timings.json());
                }
                stream::data(&chunk.into(), out);
            }
            Answer::Done(finish) => {
                self.echo(finish.choice, &[], out);
                self.usage.add(&finish);
                let mut chunk = self.chunk(choice(finish.choice, "", Value::Null, Some(&finish)));
                if !self.delivery.include_usage {
                    chunk.insert("usage".to_owned(), self.usage.json());
                    chunk.insert("timings".to_owned(), finish.timings.json());
                }
                stream::data(&chunk.into(), out);
            }
        }
    }

    fn end(&mut self, out: &mut String) {
        if self.delivery.include_usage {
            let mut chunk = self.head.object("text_completion", Vec::new());
            chunk.insert("usage".to_owned(), self.usage.json());
            stream::data(&chunk.into(), out);
        }
        out.push_str(DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        stream::data(&error.json(Shape::OpenAi), out);
    }
}
