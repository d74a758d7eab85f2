// Requests to the API, with the credentials of the user alone: a token that the user gave, else what the browser has (a client
// certificate), else what a proxy in between adds.

const KEPT = 'kube-apiserver.token';
// The longest line of a watch that is taken: objects are smaller.
const LINE_CHARACTERS = 32 * 1024 * 1024;
const base = location.pathname.replace(/\/ui\/[^/]*$/, '');

let token = sessionStorage.getItem(KEPT) ?? '';

export const hasToken = () => token !== '';

export function useToken(value, keep) {
  token = value;
  if (keep && value) sessionStorage.setItem(KEPT, value);
  else sessionStorage.removeItem(KEPT);
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

export async function request(path, { method = 'GET', accept = 'application/json', query = {}, body, type, signal } = {}) {
  const headers = { Accept: accept };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (type) headers['Content-Type'] = type;
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const search = pairs.length ? `?${new URLSearchParams(pairs)}` : '';
  let response;
  try {
    response = await fetch(`${base}${path}${search}`, { method, headers, body, signal, cache: 'no-store', redirect: 'error' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, 'The server cannot be reached.');
  }
  if (!response.ok) throw await refused(response);
  return response;
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

// Follows changes from a version on until the signal fires, over as many watches as it takes. `take(event)` gets each; `gone()` is called
// when the version is too old and ends it; `state(word)` hears "live" and "lost".
export async function follow(path, { query, accept, from, signal, take, gone, state = () => {} }) {
  const over = async () => {
    try {
      await gone();
    } catch {
      if (!signal.aborted) state('lost');
    }
  };
  let wait = 1000;
  let version = from;
  while (!signal.aborted) {
    try {
      const response = await request(path, { accept, signal, query: { ...query, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: version, pretty: 'false' } });
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
      if (error.status === 410) return over();
      state('lost');
      if ([401, 403, 404, 405].includes(error.status)) return undefined;
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, 15_000);
  }
  return undefined;
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
