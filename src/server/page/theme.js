// Light, dark, or as the system says. The style sheet does the rest from the attribute.

const KEY = "qgguf.theme";

/** "light", "dark" or "system". */
export function theme() {
  return localStorage.getItem(KEY) ?? "system";
}

export function setTheme(name) {
  if (name === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, name);
  applyTheme();
}

export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}
