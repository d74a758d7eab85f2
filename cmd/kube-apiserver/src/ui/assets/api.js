// Requests to the API, with the credentials of the user alone: a token that the user gave, else what the browser has (a client
// certificate), else what a proxy in between adds.

// How long an answer that is no watch may take, its body included.
const TIMEOUT_MILLISECONDS = 10_000;
// The longest line of a watch that is taken: objects are smaller.
const LINE_CHARACTERS = 32 * 1024 * 1024;
const base = location.pathname.replace(/\/ui\/[^/]*$/, '');

// In memory alone: whatever else is served at this origin, pages of pods through the API's proxy too, can read what a tab keeps.
let token = '';

export const hasToken = () => token !== '';
// What a header takes.
export const isToken = (value) => /^[\x21-\x7e]+$/.test(value);

// Gives what was used before.
export function useToken(value) {
  const before = token;
  token = value;
  return before;
}

let unauthorized = () => {};
// Calls back when an answer says that the credentials are not taken (any more).
export function onUnauthorized(callback) {
  unauthorized = callback;
}

// An answer that is no success, or none at all (status 0).
export class Refused extends Error {
  constructor(status, message, causes = [], reason = '') {
    super(message);
    this.status = status;
    this.causes = causes;
    this.reason = reason;
  }
}

async function refused(response) {
  const text = (await response.text()).slice(0, 100_000);
  try {
    const status = JSON.parse(text);
    if (status.kind === 'Status') {
      const causes = (status.details?.causes ?? []).map((cause) => `${cause.field ? `${cause.field}: ` : ''}${cause.message}`);
      return new Refused(response.status, status.message ?? status.reason, causes, status.reason);
    }
  } catch {
    // Plain text.
  }
  return new Refused(response.status, text.trim() || `${response.status} ${response.statusText}`);
}

function unanswered(error, method) {
  if (error.name !== 'TimeoutError') return new Refused(0, 'The server cannot be reached.');
  const done = method === 'GET' ? '' : ' It may have done what was asked all the same.';
  return new Refused(0, `The server has not answered within ${TIMEOUT_MILLISECONDS / 1000} seconds.${done}`);
}

// Fails as `request` does where the body does not come.
function guarded(response, method, signal) {
  for (const name of ['text', 'json']) {
    const read = response[name].bind(response);
    response[name] = () => read().catch((error) => {
      throw signal?.aborted || error instanceof SyntaxError ? error : unanswered(error, method);
    });
  }
  return response;
}

// `isWatch`: it has no end. `isProbe`: that it is unauthorized is the caller's to tell.
export async function request(path, { method = 'GET', accept = 'application/json', query = {}, body, type, signal, isWatch = false, isProbe = false } = {}) {
  const headers = { Accept: accept };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (type) headers['Content-Type'] = type;
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const search = pairs.length ? `?${new URLSearchParams(pairs)}` : '';
  let response;
  try {
    const limits = [signal, !isWatch && AbortSignal.timeout(TIMEOUT_MILLISECONDS)].filter(Boolean);
    response = await fetch(`${base}${path}${search}`, { method, headers, body, signal: AbortSignal.any(limits), cache: 'no-store', redirect: 'error' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unanswered(error, method);
  }
  guarded(response, method, signal);
  if (response.ok) return response;
  if (response.status === 401 && !isProbe && headers.Authorization === (token ? `Bearer ${token}` : undefined)) unauthorized();
  throw await refused(response);
}

export const get = async (path, options) => (await request(path, options)).json();
export const text = async (path, options) => (await request(path, options)).text();
export const post = async (path, object, options = {}) =>
  (await request(path, { ...options, method: 'POST', type: 'application/json', body: JSON.stringify(object) })).json();

// Texts of the warnings of an answer.
export function warnings(response) {
  const found = [];
  for (const match of (response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)) found.push(match[1].replace(/\\(.)/g, '$1'));
  return found;
}

export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    if (rest.length > LINE_CHARACTERS) throw new Refused(0, 'An event of the watch is too long.');
    for (const part of parts) if (part) yield part;
  }
}

const versionOf = (object) => object?.metadata?.resourceVersion || object?.rows?.[0]?.object?.metadata?.resourceVersion;

// Resolves when the page is seen, or the signal fires.
export function seen(signal) {
  if (!document.hidden || signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const heard = new AbortController();
    const check = () => {
      if (document.hidden && !signal?.aborted) return;
      heard.abort();
      resolve();
    };
    document.addEventListener('visibilitychange', check, { signal: heard.signal });
    signal?.addEventListener('abort', check, { signal: heard.signal });
  });
}

// Fires with the signal, and when the page is hidden: a browser has few connections to a server for all its tabs.
function whileSeen(signal) {
  const ended = new AbortController();
  const all = AbortSignal.any([signal, ended.signal]);
  document.addEventListener('visibilitychange', () => { if (document.hidden) ended.abort(); }, { signal: all });
  return { all, end: () => ended.abort() };
}

// Answers after which asking again is of no use.
const FINAL = [401, 403, 404, 405];

// Follows changes from a version on until the signal fires, over as many watches as it takes, and while the page is seen. `take(event)` gets
// each; `gone()` is called when the version is too old and ends it; `state(word)` hears "live", "retrying", "refused" and "lost".
export async function follow(path, { query, accept, from, signal, take, gone, state = () => {} }) {
  const over = async () => {
    try {
      await gone();
    } catch (error) {
      if (!signal.aborted) state(FINAL.includes(error.status) ? 'refused' : 'lost');
    }
  };
  let wait = 1000;
  let version = from;
  for (;;) {
    await seen(signal);
    if (signal.aborted) return undefined;
    const watch = whileSeen(signal);
    try {
      const response = await request(path, { accept, signal: watch.all, isWatch: true, query: { ...query, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: version, pretty: 'false' } });
      state('live');
      for await (const line of lines(response)) {
        wait = 1000;
        const event = JSON.parse(line);
        if (event.type === 'ERROR') {
          if (event.object?.code === 410) return over();
          throw new Refused(event.object?.code ?? 0, event.object?.message ?? 'the watch failed');
        }
        version = versionOf(event.object) ?? version;
        if (event.type !== 'BOOKMARK') take(event);
      }
    } catch (error) {
      if (signal.aborted) return undefined;
      if (watch.all.aborted) continue;
      if (error.status === 410) return over();
      if (FINAL.includes(error.status)) {
        state('refused');
        return undefined;
      }
      state('retrying');
    } finally {
      watch.end();
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, 15_000);
  }
}

let discovered;
// Groups with versions and resources, the core group first; asked for again after a minute.
export async function discovery() {
  if (discovered && Date.now() - discovered.at < 60_000) return discovered.groups;
  const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
  const both = await Promise.all(['/api', '/apis'].map((path) => get(path, { accept })));
  const groups = both.flatMap((list) => list.items ?? []).map((group) => ({
    name: group.metadata?.name ?? '',
    versions: (group.versions ?? []).map((v) => ({ version: v.version, freshness: v.freshness, resources: v.resources ?? [] })),
  }));
  discovered = { at: Date.now(), groups };
  return groups;
}

export function forget() {
  discovered = undefined;
}
