// What the stand-in for the server says.

export const props = {
  default_generation_settings: {
    n_ctx: 8192,
    params: {
      temperature: 0.20000000298023224, top_k: 40, top_p: 0.949999988079071, min_p: 0.05, repeat_penalty: 1,
      presence_penalty: 0, frequency_penalty: 0, seed: 4294967295, n_predict: -1,
    },
    sources: { temperature: "file", top_p: "file" },
  },
  chat_template: "{% if enable_thinking %}<think>{% endif %}",
};

const MARKDOWN = `Light from the sun holds every colour. Air scatters **short waves** far more than long ones, so blue reaches your eye from all over the sky.

## How much more

Rayleigh's law says that scattering grows with the fourth power of the frequency:

| Colour | Wavelength | Scattering |
|:-------|-----------:|-----------:|
| Blue   |     450 nm |        4.4 |
| Green  |     550 nm |        2.0 |
| Red    |     650 nm |        1.0 |

In a line of Python, relative to red:

\`\`\`python
def scattering(wavelength, red=650):
    """Relative to red light, by Rayleigh's law."""
    return (red / wavelength) ** 4

print(f"{scattering(450):.1f}")  # 4.4
\`\`\`

Two things follow:

1. At noon the path through the air is short, and the sky is blue.
2. At sunset it is long: the blue is gone, and what is left is *red*.
`;

/** The answer to a message, chosen by a word in it. */
export function answerTo(message) {
  if (/sky/.test(message)) {
    return { reasoning: "The question is about Rayleigh scattering. A short explanation, a table and a line of code will do.", content: MARKDOWN };
  }
  if (/break off/.test(message)) return { content: "This is the beginning of an answer that", breaksAt: 5 };
  if (/long/.test(message)) return { content: Array.from({ length: 2000 }, (_, at) => `word${at}`).join(" ") };
  return { content: `You wrote “${message}”, and this is the answer to it.` };
}

const LAYER = [
  ["attn_norm.weight", [576], "F32", 32],
  ["attn_q.weight", [576, 576], "Q4_1", 5],
  ["attn_k.weight", [576, 192], "Q4_1", 5],
  ["attn_v.weight", [576, 192], "Q4_1", 5],
  ["attn_output.weight", [576, 576], "Q4_1", 5],
  ["ffn_norm.weight", [576], "F32", 32],
  ["ffn_gate.weight", [576, 1536], "Q4_1", 5],
  ["ffn_up.weight", [576, 1536], "Q4_1", 5],
  ["ffn_down.weight", [1536, 576], "Q4_1", 5],
];

function tensor(name, shape, type, bits_per_weight) {
  const n_elements = shape.reduce((a, b) => a * b);
  return { name, shape, type, bits_per_weight, n_elements, n_bytes: (n_elements * bits_per_weight) / 8, offset: 0, shard: 1 };
}

const tensors = [
  tensor("token_embd.weight", [576, 49152], "Q8_0", 8.5),
  ...Array.from({ length: 30 }, (_, layer) => LAYER.map(([name, ...rest]) => tensor(`blk.${layer}.${name}`, ...rest))).flat(),
  tensor("output_norm.weight", [576], "F32", 32),
];

const total = sum(tensors, "n_elements");

function sum(list, field) {
  return list.reduce((n, item) => n + item[field], 0);
}

function totals(kind, name, test) {
  const some = tensors.filter(test);
  const n_parameters = sum(some, "n_elements");
  return { [kind]: name, n_tensors: some.length, n_parameters, share: n_parameters / total, n_bytes: sum(some, "n_bytes"), bits_per_weight: 5 };
}

/** In the form of `qgguf inspect --json`. */
export const inspected = {
  file: "/models/Stand-in-135M.Q4_1.gguf",
  shards: ["/models/Stand-in-135M.Q4_1.gguf"],
  version: 3,
  n_bytes: sum(tensors, "n_bytes") + 1_800_000,
  architecture: "llama",
  file_type: "Q4_1",
  n_tensors: tensors.length,
  n_parameters: total,
  active: null,
  bits_per_weight: 5.85,
  metadata: {
    "general.architecture": { type: "string", value: "llama" },
    "general.name": { type: "string", value: "Stand-in 135M" },
    "general.sampling.temp": { type: "f32", value: 0.2 },
    "llama.context_length": { type: "u32", value: 8192 },
    "llama.embedding_length": { type: "u32", value: 576 },
    "llama.block_count": { type: "u32", value: 30 },
    "tokenizer.ggml.tokens": { type: "array[string]", value: Array.from({ length: 500 }, (_, at) => `<token ${at}>`) },
    "tokenizer.chat_template": { type: "string", value: "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}\n{% endfor %}{# and so on, and so on, and so on, and so on #}" },
  },
  tensors,
  parameters: [
    totals("part", "embedding", ({ name }) => name.startsWith("token")),
    totals("part", "attention", ({ name }) => /attn_[qkvo]/.test(name)),
    totals("part", "feed-forward", ({ name }) => /ffn_[gud]/.test(name)),
    totals("part", "norms", ({ name }) => /norm/.test(name)),
    totals("part", "output", () => false),
  ],
  types: ["Q4_1", "Q8_0", "F32"].map((type) => totals("type", type, (tensor) => tensor.type === type)),
};
