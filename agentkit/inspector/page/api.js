// Requests to the server. The token, if there is one, is stored for this tab only.

const KEY = "agentkit-inspector-token";
let askForToken = null;

export function onToken(ask) {
  askForToken = ask;
}

export function takeToken() {
  const found = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (found) {
    // A link of another person must not replace the token of this tab: its inputs would go to the account of that person.
    if (!sessionStorage.getItem(KEY)) sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + location.search + (found[2] ? `#${found[2]}` : ""));
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(KEY));
}

export class ServerError extends Error {
  constructor(status, kind, message, problems = []) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.problems = problems;
    this.title = { 401: "A token is needed", 403: "Not allowed", 404: "Not found" }[status] || TITLES[kind] || "An error occurred";
  }
}

const TITLES = {
  KwargsError: "Missing values",
  BudgetError: "The budget is too small",
  TemplateError: "Invalid template",
  JournalError: "The sent prompt is no longer available",
};

async function send(path, options) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...(options.headers || {}) };
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(`api/${path}`, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "Unreachable", "The server does not respond: check that it is running");
  }
  let data = null;
  try {
    data = await response.json();
  } catch {
    throw new ServerError(response.status, "Unreadable", `The server returned status ${response.status} without JSON`);
  }
  if (response.ok) return data;
  const error = (data && data.error) || {};
  const failed = new ServerError(response.status, error.kind, error.message || `status ${response.status}`, error.problems);
  if (response.status === 401 && askForToken) askForToken(failed);
  throw failed;
}

export const get = (path, query = {}, signal) =>
  send(`${path}?${new URLSearchParams(query)}`, { method: "GET", signal });

export const post = (path, body, signal) =>
  send(path, { method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
