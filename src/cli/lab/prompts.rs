//! What models are asked: five kinds of text that quantization may hurt differently, or a file's.

use std::path::Path;

use qgguf::chat_template::{Message, RenderOptions};
use qgguf::model::Model;

use crate::cli::args::read_text;
use crate::cli::error::{Failure, Result};
use crate::cli::terminal::note;

/// A prompt and what to call it.
pub struct Prompt {
    pub name: String,
    text: Text,
}

enum Text {
    /// To be continued.
    Plain(String),
    /// Messages, written as the model's chat template has it: role and content.
    Dialogue(Vec<(&'static str, &'static str)>),
}

/// A line that stands between the prompts of a file.
const SEPARATOR: &str = "---";

/// The five built-in prompts.
pub fn built_in() -> Vec<Prompt> {
    let plain = |name: &str, text: &str| Prompt { name: name.to_owned(), text: Text::Plain(text.to_owned()) };
    let points: Vec<String> =
        POINTS.iter().enumerate().map(|(i, point)| format!("{}. {point}\n", i + 1)).collect();
    vec![
        plain("question", "What is the capital of France, and which river flows through it?"),
        plain("russian", RUSSIAN),
        plain("code", CODE),
        plain("list", &format!("Twenty things to check before a long journey:\n{}", points.concat())),
        Prompt { name: "dialogue".to_owned(), text: Text::Dialogue(DIALOGUE.to_vec()) },
    ]
}

/// The prompts of a file, with lines of `---` between them.
pub fn from_file(path: &Path) -> Result<Vec<Prompt>> {
    let text = read_text(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let texts = lines.split(|line| line.trim_end() == SEPARATOR).map(|lines| lines.join("\n"));
    let prompts: Vec<Prompt> = texts
        .filter(|text| !text.trim().is_empty())
        .enumerate()
        .map(|(i, text)| Prompt { name: format!("{}", i + 1), text: Text::Plain(text) })
        .collect();
    if prompts.is_empty() {
        return Err(Failure::text(format!("{}: there is no prompt in the file", path.display())));
    }
    Ok(prompts)
}

impl Prompt {
    /// Its tokens for a model, the last `n_max` of them if there are more.
    pub fn tokens(&self, model: &Model, n_max: usize) -> Result<Vec<u32>> {
        let tokenizer = model.tokenizer();
        let mut tokens = match &self.text {
            Text::Plain(text) => tokenizer.encode(text, true, true),
            Text::Dialogue(messages) => dialogue(messages, model)?,
        };
        if tokens.is_empty() {
            return Err(Failure::text(format!("prompt {}: there are no tokens in it", self.name)));
        }
        if tokens.len() > n_max {
            let name = &self.name;
            note!(
                "qgguf: prompt {name} has {} tokens, of which the last {n_max} fit the context",
                tokens.len()
            );
            tokens.drain(..tokens.len() - n_max);
        }
        Ok(tokens)
    }
}

/// As the model's template has it; as plain lines if it has none or none for a system message.
fn dialogue(messages: &[(&str, &str)], model: &Model) -> Result<Vec<u32>> {
    let template = model.chat_template(None).ok().flatten();
    let rendered = template.and_then(|template| {
        let messages: Vec<Message> =
            messages.iter().map(|(role, content)| Message::new(role, content)).collect();
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        template.render(&messages, &options).ok()
    });
    let tokenizer = model.tokenizer();
    let Some(text) = rendered else {
        let lines: Vec<String> =
            messages.iter().map(|(role, content)| format!("{role}: {content}\n\n")).collect();
        return Ok(tokenizer.encode(&format!("{}assistant:", lines.concat()), true, true));
    };
    let mut tokens = tokenizer.encode(&text, false, true);
    // One BOS where the model wants one, whether or not the template writes it.
    if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos())
        && tokens.first() != Some(&bos)
    {
        tokens.insert(0, bos);
    }
    Ok(tokens)
}

const RUSSIAN: &str = "\
Скорость порождения текста на обычном процессоре почти целиком определяется пропускной способностью памяти. Чтобы \
получить один токен, нужно прочитать все веса модели ровно один раз, поэтому время шага близко к отношению объёма весов \
к скорости чтения. Отсюда следует простое правило: если хранить вес не в шестнадцати, а в четырёх битах, модель станет \
работать почти вчетверо быстрее на той же машине. Цена этого ускорения — погрешность округления. Веса строки делят на \
группы, для каждой группы хранят общий множитель, а сам вес заменяют ближайшим из шестнадцати уровней. Чем больше \
группа, тем меньше места занимают множители, но тем сильнее на всех её членах сказывается один большой выброс. Ошибка \
отдельного веса не превышает половины шага, имеет почти нулевое среднее и слабо связана с ошибками соседей, поэтому \
при сложении сотен произведений она частично гасится. Тем не менее некоторые слои заметно чувствительнее других: ";

const CODE: &str = "\
import heapq


def shortest_paths(graph, source):
    \"\"\"Distances from source to every node of a graph with non-negative weights.

    graph maps a node to a dictionary of its neighbours and the lengths of the edges to them.
    \"\"\"
    distance = {source: 0}
    queue = [(0, source)]
    while queue:
        d, node = heapq.heappop(queue)
        if d > distance[node]:
            continue
        for neighbour, length in graph[node].items():
";

const POINTS: [&str; 20] = [
    "The passport is valid for another six months.",
    "Tickets are printed and saved on the phone.",
    "The windows are closed.",
    "The stove and the iron are switched off.",
    "A neighbour has the spare key.",
    "The plants are watered.",
    "Medicine for two weeks is packed.",
    "The charger is in the small bag.",
    "Bank cards work abroad.",
    "There is some cash in the local currency.",
    "Insurance papers are at hand.",
    "The address of the hotel is written down.",
    "Shoes are good for a long walk.",
    "A warm sweater is packed, even in summer.",
    "The water bottle is empty for the airport.",
    "The fridge holds nothing that spoils.",
    "The post office keeps the letters.",
    "The alarm clock is set an hour early.",
    "Somebody at home knows the route.",
    "A book for the train is in the bag.",
];

const DIALOGUE: [(&str, &str); 4] = [
    ("system", "You are a patient teacher of physics. Answer in two or three short sentences."),
    ("user", "Why is the sky blue?"),
    (
        "assistant",
        "Air scatters short waves of light more than long ones. Blue light reaches us from all directions, so the sky \
         looks blue.",
    ),
    ("user", "And why is it red in the evening?"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_prompts_between_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.txt");
        std::fs::write(&path, "One\ntwo\n---\n\n---\n three --- four\n").unwrap();
        let texts: Vec<String> = from_file(&path)
            .unwrap()
            .into_iter()
            .map(|prompt| match prompt.text {
                Text::Plain(text) => text,
                Text::Dialogue(_) => panic!("files have plain texts"),
            })
            .collect();
        assert_eq!(texts, ["One\ntwo", " three --- four"]);
        std::fs::write(&path, "\n---\n").unwrap();
        let line = from_file(&path).err().expect("no prompt").line();
        assert!(line.ends_with("there is no prompt in the file"), "{line}");
    }
}
