"""The typed SDKs: their models are strict, their accumulators merge the stream's pieces."""

import json

import anthropic
import ollama
import openai
import pytest
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "In the beginning"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


class Verse(BaseModel):
    """What an answer is held to."""

    chapter: int = Field(ge=1, le=9)
    verse: int = Field(ge=1, le=9)
    text: str = Field(max_length=20)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=server.key, max_retries=0)


def test_chat_is_the_same_whole_and_streamed(client):
    whole = client.chat.completions.create(model="kjv", messages=QUESTION, seed=1, **GREEDY)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert whole.usage.completion_tokens == 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 12
    stream = client.chat.completions.create(
        model="kjv", messages=QUESTION, seed=1, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


def test_choices_stops_and_seeds(client):
    answers = client.chat.completions.create(
        model="kjv", messages=QUESTION, n=3, seed=5, temperature=1.2, max_completion_tokens=8
    )
    assert [choice.index for choice in answers.choices] == [0, 1, 2]
    again = client.chat.completions.create(
        model="kjv", messages=QUESTION, n=3, seed=5, temperature=1.2, max_completion_tokens=8
    )
    texts = lambda answers: [choice.message.content for choice in answers.choices]
    assert texts(again) == texts(answers)
    whole = client.completions.create(model="kjv", prompt="In the beginning", temperature=0, max_tokens=20)
    stop = whole.choices[0].text[5:9]
    cut = client.completions.create(model="kjv", prompt="In the beginning", temperature=0, max_tokens=20, stop=stop)
    assert cut.choices[0].text == whole.choices[0].text.split(stop)[0]
    assert cut.choices[0].finish_reason == "stop"


def test_log_probabilities_in_both_shapes(client):
    chat = client.chat.completions.create(
        model="kjv", messages=QUESTION, logprobs=True, top_logprobs=3, temperature=0, max_tokens=4
    )
    content = chat.choices[0].logprobs.content
    assert len(content) == 4
    for token in content:
        assert token.logprob <= 0 and token.top_logprobs[0].logprob == token.logprob
        assert len(token.top_logprobs) == 3
    legacy = client.completions.create(
        model="kjv", prompt="In the beginning", echo=True, logprobs=2, temperature=0, max_tokens=2
    )
    logprobs = legacy.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None and len(logprobs.tokens) == len(logprobs.text_offset)
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert legacy.choices[0].text.startswith("In the beginning")


def test_structured_answers_are_what_the_schema_says(client):
    parsed = client.chat.completions.parse(
        model="kjv", messages=QUESTION, response_format=Verse, temperature=0.8, seed=3, max_tokens=400
    )
    assert isinstance(parsed.choices[0].message.parsed, Verse)
    anything = client.chat.completions.create(
        model="kjv", messages=QUESTION, response_format={"type": "json_object"}, temperature=0, max_tokens=200
    )
    if anything.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(anything.choices[0].message.content), dict)
    with pytest.raises(openai.BadRequestError) as refused:
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
        client.chat.completions.create(
            model="kjv",
            messages=QUESTION,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        )
    assert "pattern" in str(refused.value) or "regex" in str(refused.value)


def test_a_tool_that_must_be_called_is(client):
    tool = {
        "type": "function",
        "function": {
            "name": "find_verse",
            "description": "Finds a verse",
            "parameters": {
                "type": "object",
                "properties": {"chapter": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["chapter"],
                "additionalProperties": False,
            },
        },
    }
    chosen = {"type": "function", "function": {"name": "find_verse"}}
    answer = client.chat.completions.create(
        model="kjv", messages=QUESTION, tools=[tool], tool_choice=chosen, temperature=0, max_tokens=120
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.function.name == "find_verse" and 1 <= json.loads(call.function.arguments)["chapter"] <= 9
    stream = client.chat.completions.create(
        model="kjv",
        messages=QUESTION,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=120,
        stream=True,
    )
    arguments, names = "", []
    for chunk in stream:
        for delta in chunk.choices[0].delta.tool_calls or []:
            names += [delta.function.name] if delta.function.name else []
            arguments += delta.function.arguments or ""
    assert names == ["find_verse"] and json.loads(arguments) == json.loads(call.function.arguments)


def test_models_embeddings_and_responses(client):
    assert [model.id for model in client.models.list()] == ["kjv"]
    assert client.models.retrieve("kjv").id == "kjv"
    both = client.embeddings.create(model="kjv", input=["the earth", "the heaven"])
    assert [item.index for item in both.data] == [0, 1]
    assert abs(sum(x * x for x in both.data[0].embedding) - 1) < 1e-3
    plain = client.embeddings.create(model="kjv", input="the earth", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(both.data[0].embedding)
    answer = client.responses.create(model="kjv", input="In the beginning", temperature=0, max_output_tokens=16)
    assert answer.status == "incomplete" and answer.output_text
    events = client.responses.create(
        model="kjv", input="In the beginning", temperature=0, max_output_tokens=16, stream=True
    )
    events = list(events)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == answer.output_text


def test_errors_have_their_classes(server, client):
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
    with pytest.raises(openai.BadRequestError) as full:
        client.completions.create(model="kjv", prompt="word " * 9000)
    assert full.value.body["n_ctx"] > 0 and full.value.body["n_prompt_tokens"] > full.value.body["n_ctx"]
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="kjv", messages=QUESTION, top_logprobs=3)
    with pytest.raises(openai.NotFoundError):
        client.get("/nothing", cast_to=object)


def test_anthropic(server):
    client = anthropic.Anthropic(base_url=server.url, api_key=server.key, max_retries=0)
    ask = dict(model="kjv", max_tokens=12, messages=QUESTION, extra_body={"temperature": 0})
    whole = client.messages.create(**ask)
    assert whole.stop_reason == "max_tokens" and whole.content[0].type == "text"
    assert whole.usage.output_tokens == 12
    with client.messages.stream(**ask) as stream:
        assert stream.get_final_message().content[0].text == whole.content[0].text
    counted = client.messages.count_tokens(model="kjv", messages=QUESTION)
    assert counted.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0).messages.create(**ask)


def test_ollama(server):
    client = ollama.Client(host=server.url, headers={"Authorization": f"Bearer {server.key}"})
    assert [model.model for model in client.list().models] == ["kjv"]
    options = {"temperature": 0, "num_predict": 12}
    whole = client.chat(model="kjv", messages=QUESTION, options=options)
    pieces = list(client.chat(model="kjv", messages=QUESTION, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].done_reason == "length" and pieces[-1].eval_count == 12
    raw = client.generate(model="kjv", prompt="In the beginning", raw=True, options=options)
    assert raw.response and raw.eval_count == 12
    assert "completion" in client.show("kjv").capabilities
    assert len(client.embed(model="kjv", input=["a", "b"]).embeddings) == 2
