// The sampling settings: which there are, what the server would take, what the person changed.

/** Name in a request, name in `/props` where that differs, label, and the bounds of the field. */
export const PARAMS = [
  { name: "temperature", label: "Temperature", min: 0, max: 5, step: 0.05, hint: "0 takes the likeliest token; higher is more varied" },
  { name: "top_k", label: "Top-k", min: 0, step: 1, hint: "Choose among this many likeliest tokens; 0 for all" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.01, hint: "Choose among the likeliest tokens that reach this probability together" },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: 0.01, hint: "Drop tokens less likely than this share of the likeliest one" },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0.1, max: 5, step: 0.05, hint: "Above 1 makes repeated tokens less likely" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "Taken once from a token that occurred" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "Taken from a token for every time it occurred" },
  { name: "seed", label: "Seed", min: 0, step: 1, unset: "random", hint: "The same seed gives the same answer" },
  { name: "max_tokens", serverName: "n_predict", label: "Longest answer", min: 1, step: 1, unset: "no limit", hint: "In tokens" },
];

/** Where a value comes from, in the words of the page. */
const SOURCES = { file: "model file", server: "server", default: "default" };

/** What the server uses if a request does not say, as text, and where it has it from. */
export function serverValue(param, props) {
  const settings = props?.default_generation_settings;
  const name = param.serverName ?? param.name;
  const value = settings?.params?.[name];
  const source = SOURCES[settings?.sources?.[name]] ?? "server";
  const isUnset = typeof value !== "number" || (param.unset && !(value >= param.min && value < 2 ** 32 - 1));
  if (isUnset) return { text: param.unset ?? "", source };
  return { text: String(Number(value.toFixed(4))), source };
}

/** The number in a field, or null if it is empty. Throws nothing: the field's own bounds decide what is valid. */
export function parse(field) {
  return field.value.trim() === "" || !field.validity.valid ? null : field.valueAsNumber;
}
