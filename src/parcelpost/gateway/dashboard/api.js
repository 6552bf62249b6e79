// The gateway's read API, with the reader's token if it needs one.

const KEY = "parcelpost.token";
const TIMEOUT_MS = 10_000;

export class NeedsToken extends Error {}
export class Forbidden extends Error {}
export class Unreachable extends Error {}
export class Rejected extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

// Returns the response's JSON. Throws NeedsToken, Forbidden, Unreachable or Rejected, or AbortError when the signal says so.
export async function ask(path, { signal, body } = {}) {
  const answer = await send(path, { signal, body });
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The response was incomplete.");
  }
}

// Returns a file. With a token the browser cannot follow a plain link.
export async function fetchFile(path) {
  const answer = await send(path, { timeout: 3_600_000 });
  return answer.blob();
}

export async function save(path, name) {
  const url = URL.createObjectURL(await fetchFile(path));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function send(path, { signal, body, timeout = TIMEOUT_MS }) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  const signals = [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])];
  const options = { headers, signal: AbortSignal.any(signals), cache: "no-store" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The gateway is unreachable.");
  }
  if (answer.ok) return answer;
  throw problem(answer.status, await messageOf(answer));
}

function problem(status, message) {
  if (status === 401) return new NeedsToken(message);
  if (status === 403) return new Forbidden(message);
  return [502, 503, 504].includes(status) ? new Unreachable(message) : new Rejected(status, message);
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The gateway returned status ${answer.status}.`;
  }
}
