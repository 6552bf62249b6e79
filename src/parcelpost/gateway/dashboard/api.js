// The gateway's read API, with the reader's token if it needs one.

const KEY = "parcelpost.token";
const PATIENCE_MS = 10_000;

export class NeedsToken extends Error {}
export class Forbidden extends Error {}
export class Away extends Error {}
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

// The answer's JSON. Throws NeedsToken, Forbidden, Away or Refused, or AbortError when the signal says so.
export async function ask(path, { signal, body } = {}) {
  const answer = await send(path, { signal, body });
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away("The answer was cut off.");
  }
}

// Saves a file. With a token the browser cannot follow a plain link, so it is fetched first.
export async function save(path, name) {
  const answer = await send(path, { patience: 3_600_000 });
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function send(path, { signal, body, patience = PATIENCE_MS }) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  const signals = [AbortSignal.timeout(patience), ...(signal ? [signal] : [])];
  const options = { headers, signal: AbortSignal.any(signals), cache: "no-store" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away("The gateway does not answer.");
  }
  if (answer.ok) return answer;
  throw problem(answer.status, await told(answer));
}

function problem(status, message) {
  if (status === 401) return new NeedsToken(message);
  if (status === 403) return new Forbidden(message);
  return status >= 500 ? new Away(message) : new Refused(status, message);
}

async function told(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The gateway answered ${answer.status}.`;
  }
}
