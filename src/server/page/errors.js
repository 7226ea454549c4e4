// What went wrong, in words for the person at the page.

import { ApiError, Unreachable } from "./api.js";
import { count } from "./dom.js";

/** A sentence or two that say what happened and what helps. */
export function explain(error) {
  if (error instanceof Unreachable) return "The connection to the server was lost.";
  if (error instanceof ApiError) return ofStatus(error);
  return `Something went wrong on this page: ${error.message}`;
}

function ofStatus(error) {
  if (error.type === "exceed_context_size_error") return contextFull(error);
  switch (error.status) {
    case 401:
      return "The server wants an API key.";
    case 404:
      return `The server does not have this: ${error.message}`;
    case 413:
      return "This conversation is larger than the server takes in one request. Start a new one, or shorten a message.";
    case 429:
      return `Others are waiting too: the server's queue is full. ${again(error)}`;
    case 503:
      return /load/i.test(error.message) ? "The model is still being loaded." : `The server takes no requests now. ${again(error)}`;
    case 400:
      return `The server refused this request: ${error.message}`;
    default:
      return `The server failed: ${error.message}`;
  }
}

function contextFull({ nPromptTokens, nContext }) {
  const numbers = nPromptTokens && nContext
    ? `This conversation has ${count(nPromptTokens)} tokens, and the context holds ${count(nContext)}.`
    : "This conversation no longer fits into the context.";
  return `${numbers} Start a new one, or edit an earlier message to go on from there.`;
}

function again({ retryAfter }) {
  if (!retryAfter) return "Try again in a moment.";
  return `Try again in ${retryAfter === 1 ? "a second" : `${retryAfter} seconds`}.`;
}
