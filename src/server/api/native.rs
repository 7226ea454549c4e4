//! llama-server's own `/completion` and `/infill`.

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
use super::super::limits::{Limits, MAX_N_PROBS, at_most};
use super::super::logprobs;
use super::super::prompts::{self, Prompt};
use super::super::run::{Answer, Choice, Finish};
use super::super::settings::Settings;
use super::super::state::{App, Served};
use super::super::stream::{self, Writer};
use crate::answer::Delta;
use crate::engine::generation::StopReason;
use crate::engine::service::TokenLogprobs;

/// Continues a text.
pub async fn completion(State(app): State<Arc<App>>, fields: Fields) -> Result<Response> {
    answer(app, fields, |fields, served, limit| {
        let prompt = fields.value("prompt").ok_or_else(|| fields.missing("prompt"))?;
        prompts::read("prompt", prompt, limit, served.model.tokenizer())
    })
    .await
}

/// Writes what belongs between two texts.
pub async fn infill(State(app): State<Arc<App>>, fields: Fields) -> Result<Response> {
    answer(app, fields, |fields, served, _| Ok(vec![infill_prompt(fields, served)?])).await
}

async fn answer(
    app: Arc<App>,
    mut fields: Fields,
    prompts: impl FnOnce(&mut Fields, &Served, usize) -> Result<Vec<Prompt>> + Send + 'static,
) -> Result<Response> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let delivery = Delivery::read(&mut fields, &app)?;
    let (run, told) = app
        .prepare(move |app| {
            let limits = &app.options.limits;
            let prompts = prompts(&mut fields, &served, limits.choices)?;
            let (job, told) = job(served, fields, delivery, prompts, limits)?;
            Ok((job.start(&app.metrics)?, told))
        })
        .await?;
    if delivery.stream {
        let texts = vec![String::new(); run.n_choices()];
        return Ok(stream::respond(run, Events { told, texts }, delivery.ping));
    }
    let choices = run.collect().await?;
    let mut objects = Vec::new();
    for (index, choice) in choices.iter().enumerate() {
        objects.push(told.picked(told.whole(index, choice)?));
    }
    let answer = match objects.len() {
        1 => objects.pop().unwrap_or_default(),
        _ => objects.into(),
    };
    Ok(Json(answer).into_response())
}

fn job(
    served: Arc<Served>,
    mut fields: Fields,
    delivery: Delivery,
    prompts: Vec<Prompt>,
    limits: &Limits,
) -> Result<(Job, Told)> {
    let limit = limits.choices;
    let mut settings = Settings::read(&mut fields, &served.defaults, served.model.tokenizer(), limit)?;
    at_most("n", limit, settings.n.saturating_mul(prompts.len()), "answers")?;
    let n_probs = fields.integer("n_probs", 0, MAX_N_PROBS as i64)?;
    settings.logprobs = n_probs.filter(|&n| n > 0).map(|n| n as usize);
    let form = Form::read_plain(&mut fields, limits)?;
    let told = Told {
        served: served.clone(),
        settings: settings.clone(),
        response_fields: fields.take("response_fields")?.unwrap_or_default(),
        delivery,
        prompts: prompts.clone(),
    };
    let prompts = prompts.into_iter().map(|prompt| prompt.tokens).collect();
    Ok((Job { served, prompts, settings, form, prompt_logprobs: false }, told))
}

/// The parts around the gap, in the order in which models were trained to read them: repository, files, in front, behind.
pub(super) fn infill_prompt(fields: &mut Fields, served: &Served) -> Result<Prompt> {
    let tokenizer = served.model.tokenizer();
    let Some(marks) = tokenizer.fill_in_middle() else {
        return Err(ApiError::not_supported("the model has no tokens for infilling"));
    };
    let prefix: String = fields.require("input_prefix")?;
    let suffix: String = fields.require("input_suffix")?;
    let prompt: String = fields.take("prompt")?.unwrap_or_default();
    let extra: Vec<Value> = fields.take("input_extra")?.unwrap_or_default();
    let mut tokens = Vec::new();
    tokens.extend(tokenizer.bos().filter(|_| tokenizer.add_bos()));
    for (i, value) in extra.into_iter().enumerate() {
        let mut file = Fields::of(value, &format!("input_extra[{i}]"))?;
        let name: String = file.take("filename")?.unwrap_or_else(|| "tmp".to_owned());
        let text: String = file.require("text")?;
        tokens.extend(marks.file);
        tokens.extend(tokenizer.encode(&format!("{name}\n{text}"), false, false));
    }
    tokens.push(marks.prefix);
    tokens.extend(tokenizer.encode(&prefix, false, false));
    tokens.extend(tokenizer.encode(&prompt, false, false));
    tokens.push(marks.suffix);
    tokens.extend(tokenizer.encode(&suffix, false, false));
    tokens.push(marks.middle);
    Ok(Prompt { tokens, text: None })
}

/// What goes into every object beside the generated text.
struct Told {
    served: Arc<Served>,
    settings: Settings,
    /// Keys that the answer is reduced to, with `/` for nested ones; everything if empty.
    response_fields: Vec<String>,
    delivery: Delivery,
    prompts: Vec<Prompt>,
}

impl Told {
    /// The object of a complete answer, whose text `content` is.
    fn end(&self, content: &str, has_new_line: bool, finish: &Finish) -> Value {
        let prompt = &self.prompts[finish.choice / self.settings.n];
        let (stop_type, word) = match &finish.stop {
            StopReason::EndOfGeneration(_) => ("eos", ""),
            StopReason::StopString(word) => ("word", word.as_str()),
            StopReason::Length | StopReason::ContextFull(_) => ("limit", ""),
            StopReason::Interrupted => ("none", ""),
        };
        json!({
            "index": finish.choice,
            "content": content,
            "tokens": [],
            "id_slot": -1,
            "stop": true,
            "model": self.served.name,
            "tokens_predicted": finish.usage.completion,
            "tokens_evaluated": finish.usage.prompt,
            "generation_settings": self.settings.json(),
            "prompt": prompt.text(self.served.model.tokenizer()),
            "has_new_line": has_new_line,
            "truncated": matches!(finish.stop, StopReason::ContextFull(_)),
            "stop_type": stop_type,
            "stopping_word": word,
            "tokens_cached": finish.usage.prompt + finish.usage.completion.saturating_sub(1),
            "timings": finish.timings.json(),
        })
    }

    fn whole(&self, index: usize, choice: &Choice) -> Result<Value> {
        let finish = &choice.finish;
        let mut object = self.end(&choice.message().content, choice.message().content.contains('\n'), finish);
        object["index"] = index.into();
        if self.delivery.return_tokens {
            object["tokens"] = choice.tokens.clone().into();
        }
        self.add_probabilities(&mut object, &choice.logprobs);
        Ok(object)
    }

    fn add_probabilities(&self, object: &mut Value, all: &[TokenLogprobs]) {
        if !all.is_empty() {
            object["completion_probabilities"] = logprobs::content(self.served.model.tokenizer(), all);
        }
    }

    fn picked(&self, object: Value) -> Value {
        if self.response_fields.is_empty() {
            return object;
        }
        let found = self.response_fields.iter().filter_map(|path| {
            let value = object.pointer(&format!("/{path}"))?;
            let name = path.rsplit('/').next().unwrap_or(path);
            Some((name.to_owned(), value.clone()))
        });
        Value::Object(found.collect::<Map<_, _>>())
    }
}

/// The stream of events.
struct Events {
    told: Told,
    /// The text of each answer, to know its line ends.
    texts: Vec<String>,
}

impl Events {
    fn partial(
        &self,
        choice: usize,
        content: &str,
        tokens: &[u32],
        n_predicted: usize,
        n_prompt: usize,
    ) -> Value {
        json!({
            "index": choice,
            "content": content,
            "tokens": tokens,
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": n_predicted,
            "tokens_evaluated": n_prompt,
        })
    }
}

impl Writer for Events {
    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { choice, done, total, n_cached, time }
                if self.told.delivery.return_progress =>
            {
                let mut event = self.partial(choice, "", &[], 0, total);
                event["prompt_progress"] = json!({
                    "total": total,
                    "cache": n_cached,
                    "processed": done,
                    "time_ms": time.as_millis() as u64,
                });
                stream::data(&event, out);
            }
            Answer::Progress { .. } | Answer::PromptLogprobs { .. } => {}
            Answer::Piece(piece) => {
                let Delta::Content(text) = &piece.delta else { return };
                self.texts[piece.choice].push_str(text);
                let n_prompt = piece.timings.cache_n + piece.timings.prompt_n;
                let mut event =
                    self.partial(piece.choice, text, &piece.tokens, piece.timings.predicted_n, n_prompt);
                if self.told.delivery.timings_per_token {
                    event["timings"] = piece.timings.json();
                }
                self.told.add_probabilities(&mut event, &piece.logprobs);
                stream::data(&event, out);
            }
            Answer::Done(finish) => {
                let has_new_line = self.texts[finish.choice].contains('\n');
                stream::data(&self.told.picked(self.told.end("", has_new_line, &finish)), out);
            }
        }
    }

    fn end(&mut self, _out: &mut String) {}

    fn error(&mut self, error: &ApiError, out: &mut String) {
        stream::data(&error.json(Shape::OpenAi), out);
    }
}
