//! In which notation a model writes calls of tools.

/// A notation of tool calls in the text of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, once for each call (Hermes, Qwen 2.5, Qwen 3).
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, once for each call; a value is
    /// raw text between line ends, its type is the schema's (Qwen3-Coder, Qwen 3.5, Nemotron 3).
    QwenCoder,
    /// `{"name": …, "parameters": {…}}` as the whole answer, or after `<|python_tag|>`; several are parted by `;` (Llama 3).
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}, …]` (Mistral Nemo, Mistral Small up to 3.1).
    MistralArray,
    /// `[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{…}`, once for each call, the id with its marker possibly absent (Mistral Small 3.2,
    /// Devstral, Ministral 3, Magistral).
    MistralArgs,
    /// `{"tool_call": {"name": …, "arguments": {…}}}`, or `{"tool_calls": [{…}, …]}`, or `{"response": …}` as the whole answer:
    /// for models without a notation of their own, that are told so or held to it by a grammar.
    Generic,
}

impl ToolFormat {
    /// The notation that the source of a chat template shows; `None` if it shows none that is known here, which leaves
    /// [`ToolFormat::Generic`] to the caller.
    pub fn detect(template_source: &str) -> Option<ToolFormat> {
        let has = |text: &str| template_source.contains(text);
        if has("<tool_call>") && has("<function=") && has("<parameter=") {
            return Some(ToolFormat::QwenCoder);
        }
        if has("[TOOL_CALLS]") {
            return Some(if has("[ARGS]") { ToolFormat::MistralArgs } else { ToolFormat::MistralArray });
        }
        if has("<tool_call>") && has("arguments") && !has("<arg_key>") {
            return Some(ToolFormat::Hermes);
        }
        let llama = has("<|start_header_id|>") && has("\"parameters\"");
        llama.then_some(ToolFormat::Llama3)
    }

    /// Texts that can begin a call. Where one of them is a control token, its text must be shown to the parser, and a grammar
    /// that is not in force from the start is armed by it. Empty where only the first character of the answer tells.
    pub fn triggers(self) -> &'static [&'static str] {
        match self {
            ToolFormat::Hermes => &["<tool_call>"],
            ToolFormat::QwenCoder => &["<tool_call>", "<function="],
            ToolFormat::Llama3 => &["<|python_tag|>"],
            ToolFormat::MistralArray | ToolFormat::MistralArgs => &["[TOOL_CALLS]"],
            ToolFormat::Generic => &[],
        }
    }

    /// All markers of the notation, [`ToolFormat::triggers`] included. Those that are control tokens of the model must reach
    /// the parser as text.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            ToolFormat::Hermes => &["<tool_call>", "</tool_call>"],
            ToolFormat::QwenCoder => {
                &["<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>"]
            }
            ToolFormat::Llama3 => &["<|python_tag|>"],
            ToolFormat::MistralArray => &["[TOOL_CALLS]"],
            ToolFormat::MistralArgs => &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
            ToolFormat::Generic => &[],
        }
    }
}
