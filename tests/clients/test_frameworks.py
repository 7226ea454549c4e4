"""What people put between their programs and a server."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from prometheus_client.parser import text_string_to_metric_families
import urllib.request

litellm.suppress_debug_info = True


def test_langchain(server):
    model = ChatOpenAI(
        base_url=server.url + "/v1", api_key=server.key, model="kjv", temperature=0, max_tokens=10, max_retries=0
    )
    messages = [SystemMessage("Speak as a king."), HumanMessage("In the beginning")]
    whole = model.invoke(messages)
    assert whole.usage_metadata["output_tokens"] == 10
    assert "".join(chunk.content for chunk in model.stream(messages)) == whole.content
    assert [answer.content for answer in model.batch([messages] * 4)] == [whole.content] * 4
    embeddings = OpenAIEmbeddings(
        base_url=server.url + "/v1", api_key=server.key, model="kjv", check_embedding_ctx_length=False
    )
    first, second = embeddings.embed_documents(["the earth", "the earth"])
    assert first == second and len(first) > 0


def test_litellm(server):
    ask = dict(messages=[{"role": "user", "content": "In the beginning"}], temperature=0, max_tokens=10, num_retries=0)
    openai = litellm.completion(model="openai/kjv", api_base=server.url + "/v1", api_key=server.key, **ask)
    anthropic = litellm.completion(model="anthropic/kjv", api_base=server.url, api_key=server.key, **ask)
    text = openai.choices[0].message.content
    assert text and anthropic.choices[0].message.content == text
    stream = litellm.completion(model="openai/kjv", api_base=server.url + "/v1", api_key=server.key, stream=True, **ask)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == text


def test_prometheus(server):
    request = urllib.request.Request(server.url + "/metrics", headers={"X-Api-Key": server.key})
    text = urllib.request.urlopen(request).read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["llamacpp:tokens_predicted"].type == "counter"
    histograms = [family for family in families.values() if family.type == "histogram"]
    assert len(histograms) >= 3
    for family in histograms:
        buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == next(
            sample.value for sample in family.samples if sample.name.endswith("_count")
        )
