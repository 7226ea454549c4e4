// Markdown to elements. A model's text is hostile: the parser's tokens become elements one by one, markup in the
// text stays text, links lead only to the web or to mail, and images are shown as links, never loaded.

import markdownIt from "./vendor/markdown-it.mjs";
import { copyButton, el } from "./dom.js";

const parser = markdownIt({ html: false, linkify: true, breaks: false });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

/** Draws a growing text into `root`, keeping the blocks that did not change. */
export class MarkdownView {
  #blocks = [];
  #references = "";

  constructor(root) {
    this.root = root;
  }

  update(text) {
    const { blocks, references } = blocksOf(text);
    if (references !== this.#references) this.#clear(); // links in earlier blocks may have got their targets
    this.#references = references;
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.#blocks[same]?.source) same += 1;
    for (const block of this.#blocks.slice(same)) block.element.remove();
    for (const block of blocks.slice(same)) {
      block.element = build(block.tokens);
      this.root.append(block.element);
    }
    this.#blocks = [...this.#blocks.slice(0, same), ...blocks.slice(same)];
  }

  #clear() {
    this.root.replaceChildren();
    this.#blocks = [];
  }
}

/** The top-level blocks, their tokens and the lines that they came from, and the targets of reference links. */
function blocksOf(text) {
  const lines = text.split("\n");
  const environment = {};
  const blocks = [];
  let open = [];
  for (const token of parser.parse(text, environment)) {
    open.push(token);
    if (token.level > 0 || token.nesting > 0) continue;
    const [from, to] = open[0].map;
    blocks.push({ source: `${open[0].type}\n${lines.slice(from, to).join("\n")}`, tokens: open });
    open = [];
  }
  return { blocks, references: JSON.stringify(environment.references ?? {}) };
}

function build(tokens) {
  const root = el("div", { dir: "auto" });
  grow(root, tokens);
  return root.childElementCount === 1 ? root.firstElementChild : root;
}

/** Appends tokens to `root`; opening ones go a level down, closing ones up. */
function grow(root, tokens) {
  let at = root;
  for (const token of tokens) {
    if (token.nesting < 0) {
      at = token.hidden ? at : at.parentNode;
    } else if (token.nesting > 0) {
      if (token.hidden) continue; // the paragraph of a tight list's item
      const node = opened(token);
      at.append(node);
      at = node;
    } else {
      leaf(at, token);
    }
  }
}

function opened(token) {
  switch (token.type) {
    case "link_open":
      return link(token.attrGet("href"));
    case "ordered_list_open":
      return el("ol", { start: Number(token.attrGet("start") ?? 1) });
    case "th_open":
    case "td_open":
      return el(token.tag, { dir: "auto", "data-align": token.attrGet("style")?.split(":")[1] });
    case "paragraph_open":
    case "heading_open":
      return el(token.tag, { dir: "auto" });
    default:
      return el(token.tag);
  }
}

function leaf(at, token) {
  switch (token.type) {
    case "inline":
      return grow(at, token.children);
    case "code_inline":
      return at.append(el("code", { textContent: token.content }));
    case "fence":
    case "code_block":
      return at.append(code(token.content, token.info.trim().split(/\s+/)[0]));
    case "image": {
      const image = link(token.attrGet("src"));
      image.textContent = `image: ${token.content || token.attrGet("src")}`;
      return at.append(image);
    }
    case "softbreak":
      return at.append("\n");
    case "hardbreak":
      return at.append(el("br"));
    case "hr":
      return at.append(el("hr"));
    default:
      return at.append(token.content);
  }
}

function link(href) {
  if (!/^(https?|mailto):/i.test(href)) return el("span");
  return el("a", { href, target: "_blank", rel: "noopener noreferrer", title: href });
}

function code(text, language) {
  const body = text.replace(/\n$/, "");
  return el(
    "figure",
    { className: "code" },
    el("figcaption", {}, el("span", { textContent: language || "text" }), copyButton("Copy code", () => body)),
    el("pre", { tabIndex: 0 }, el("code", { textContent: body })),
  );
}
