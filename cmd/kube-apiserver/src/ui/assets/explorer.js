// Objects of any kind, as the tables that the server makes of them, a page at a time and kept up to date by a watch.

import { Refused, TABLE, discovery, follow, forget, get } from './api.js';
import { may } from './access.js';
import { empty, freshId, h, heading, keepingFocus, note, panel, refusal, replace } from './dom.js';
import { count, number, since } from './format.js';
import { keepNamespace, keptNamespace, offerNamespace } from './namespace.js';

const PAGE = 200;
// Rows of a page that grows by what is created.
const MOST = 2 * PAGE;
const CELL = 300;

export const basePath = ({ group, version }) => (group ? `/apis/${encodeURIComponent(group)}/${encodeURIComponent(version)}` : `/api/${encodeURIComponent(version)}`);
export const listPath = (kind, namespace) => `${basePath(kind)}${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ''}/${encodeURIComponent(kind.resource)}`;
export const address = ({ group, version, resource }, ...more) => `#/${['objects', group || '-', version, resource, ...more].map(encodeURIComponent).join('/')}`;

export async function kindOf({ group, version, resource }) {
  const look = async () => (await discovery()).find((g) => g.name === group)?.versions.find((v) => v.version === version)?.resources.find((r) => r.resource === resource);
  let found = await look();
  if (!found) {
    // It may have come since the server was asked.
    forget();
    found = await look();
  }
  if (!found) throw new Refused(404, `the server has no ${resource} in ${group || 'core'}/${version}`);
  return { group, version, resource, kind: found.responseKind?.kind ?? resource, namespaced: found.scope === 'Namespaced', verbs: found.verbs ?? [] };
}

export async function showKinds(main) {
  const groups = await discovery();
  const sections = groups.map((group) => {
    // Each resource in the first of the versions that have it.
    const own = new Map();
    for (const { version, resources } of group.versions) {
      for (const r of resources) if (!own.has(r.resource) && r.verbs?.includes('list')) own.set(r.resource, { r, version });
    }
    const versions = [...new Set([...own.values()].map((one) => one.version))];
    const items = [...own.values()].map(({ r, version }) => ({
      text: `${r.resource} ${group.name} ${r.responseKind?.kind ?? ''} ${(r.shortNames ?? []).join(' ')}`.toLowerCase(),
      node: h('li', {}, h('a', { href: address({ group: group.name, version, resource: r.resource }) }, r.responseKind?.kind ?? r.resource,
        (r.shortNames?.length > 0 || version !== versions[0]) && h('span', {}, [...(r.shortNames ?? []), version !== versions[0] && version].filter(Boolean).join(', ')))),
    }));
    return { items, node: panel(group.name || 'core', versions[0], h('ul', {}, items.map((item) => item.node))) };
  }).filter((section) => section.items.length);
  const nothing = empty('No kind has this in its name.');
  nothing.hidden = true;
  const filter = (event) => {
    const words = event.target.value.toLowerCase().trim();
    let any = false;
    for (const section of sections) {
      for (const item of section.items) item.node.hidden = !item.text.includes(words);
      section.node.hidden = section.items.every((item) => item.node.hidden);
      any ||= !section.node.hidden;
    }
    nothing.hidden = any;
  };
  const first = (event) => {
    if (event.key === 'Enter') [...main.querySelectorAll('.kinds li:not([hidden]) a')].find((a) => !a.closest('section').hidden)?.click();
  };
  main.append(heading('Objects', { sub: 'Every kind that the server has, in its preferred version.' }),
    h('div', { class: 'filters' }, h('label', {}, 'Filter', h('input', { type: 'search', 'data-key': 'filter', placeholder: 'kind, short name or group', oninput: filter, onkeydown: first }))),
    nothing, h('div', { class: 'kinds' }, sections.map((section) => section.node)));
}

const keyOf = ({ namespace, name }) => `${namespace ?? ''}/${name}`;

// The rows of a page in the order of the server, each with its element.
class Rows {
  constructor(kind, body, withNamespace) {
    Object.assign(this, { kind, body, withNamespace, all: [], byKey: new Map(), columns: [], words: '' });
  }

  shown() {
    return this.columns.map((column, index) => ({ ...column, index })).filter((column) => (column.priority ?? 0) === 0);
  }

  cells(row) {
    const { metadata } = row.object;
    const link = () => h('a', { href: address(this.kind, metadata.namespace ?? '-', metadata.name) }, metadata.name);
    const cells = this.shown().map(({ name, format, type, index }) => {
      if (format === 'name' || (index === 0 && name === 'Name')) return h('th', { scope: 'row' }, link());
      const value = name === 'Age' && metadata.creationTimestamp ? since(metadata.creationTimestamp) : row.cells[index];
      const text = value === undefined || value === null || value === '' ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value);
      return h('td', { class: ['integer', 'number'].includes(type) && 'number', title: text.length > 40 && text.slice(0, 2000) }, text.length > CELL ? `${text.slice(0, CELL)}…` : text);
    });
    if (!cells.some((cell) => cell.querySelector('a'))) cells.unshift(h('th', { scope: 'row' }, link()));
    if (this.withNamespace) cells.unshift(h('td', {}, metadata.namespace ?? '–'));
    return cells;
  }

  passes(row) {
    const { metadata } = row.object;
    return !this.words || [metadata.name, metadata.namespace, ...row.cells].some((cell) => String(cell ?? '').toLowerCase().includes(this.words));
  }

  put(row, fresh) {
    const key = keyOf(row.object.metadata);
    let held = this.byKey.get(key);
    if (held) {
      held.row = row;
      keepingFocus(held.element, () => held.element.replaceChildren(...this.cells(row)));
    } else {
      held = { key, row, element: h('tr', {}, this.cells(row)) };
      let at = this.all.length;
      while (at > 0 && this.all[at - 1].key > key) at -= 1;
      this.body.insertBefore(held.element, this.all[at]?.element ?? null);
      this.all.splice(at, 0, held);
      this.byKey.set(key, held);
    }
    held.element.hidden = !this.passes(row);
    if (fresh) {
      held.element.classList.remove('fresh');
      requestAnimationFrame(() => held.element.classList.add('fresh'));
    }
  }

  remove(key) {
    const held = this.byKey.get(key);
    if (!held) return;
    const next = held.element.contains(document.activeElement) && (held.element.nextElementSibling ?? held.element.previousElementSibling);
    held.element.remove();
    if (next) {
      next.classList.add('current');
      next.querySelector('a')?.focus({ preventScroll: true });
    }
    this.byKey.delete(key);
    this.all.splice(this.all.indexOf(held), 1);
  }

  filter(words) {
    this.words = words.toLowerCase();
    for (const { row, element } of this.all) element.hidden = !this.passes(row);
  }
}

export async function showObjects(main, signal, setLive, asked, query) {
  const kind = await kindOf(asked);
  const [namespace, labels, fields] = [kind.namespaced ? query.get('namespace') ?? '' : '', query.get('labels') ?? '', query.get('fields') ?? ''];
  keepNamespace(namespace);
  const path = listPath(kind, namespace);
  const selectors = { labelSelector: labels, fieldSelector: fields };
  const go = (change) => {
    const next = new URLSearchParams(Object.entries({ namespace, labels, fields, ...change }).filter(([, value]) => value));
    location.hash = `${address(kind)}${next.size ? `?${next}` : ''}`;
  };
  const field = (label, key, value, placeholder, more) => h('label', {}, label,
    h('input', { value, placeholder, autocapitalize: 'off', spellcheck: 'false', onchange: (event) => go({ [key]: event.target.value.trim() }), ...more }));
  const names = h('datalist', { id: freshId('namespaces') });
  const inNamespace = kind.namespaced ? namespace || keptNamespace() : '';
  const create = h('button', { disabled: true, onclick: () => { location.hash = `${address(kind, '+new')}${inNamespace ? `?namespace=${encodeURIComponent(inNamespace)}` : ''}`; } }, 'Create');
  const place = h('div');
  const quick = h('input', { type: 'search', 'data-key': 'filter', placeholder: 'in this page' });
  main.append(heading(kind.kind, {
    crumbs: [h('a', { href: '#/objects', 'data-key': 'back' }, 'Objects'), ' / ', kind.group || 'core', '/', kind.version],
    actions: kind.verbs.includes('create') && [create],
  }), h('div', { class: 'filters' }, h('label', {}, 'Filter', quick),
    kind.namespaced && [field('Namespace', 'namespace', namespace, 'all', { list: names.id }), names],
    field('Labels', 'labels', labels, 'app=web,tier!=db'), field('Fields', 'fields', fields, 'metadata.name=x')), place);
  may('create', { group: kind.group, version: kind.version, resource: kind.resource, namespace }).then((allowed) => {
    create.disabled = !allowed;
    create.title = allowed ? '' : 'You may not create these.';
  });
  if (kind.namespaced) {
    get('/api/v1/namespaces', { query: { limit: 500, pretty: 'false' }, accept: TABLE, signal }).then((list) => replace(names, list.rows.map((row) => h('option', { value: row.object.metadata.name }))), () => {});
  }

  let watching = new AbortController();
  signal.addEventListener('abort', () => watching.abort(), { once: true });
  const load = async (before, token) => {
    watching.abort();
    watching = new AbortController();
    if (signal.aborted) return;
    const here = watching.signal;
    let list;
    try {
      list = await get(path, { accept: TABLE, query: { ...selectors, limit: PAGE, continue: token, pretty: 'false' }, signal });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 410) {
        await load([], undefined);
        place.prepend(note('warn', 'The list has changed too much since its first page was read: it begins anew.'));
        return;
      }
      throw error;
    }
    const head = h('tr');
    const tbody = h('tbody');
    const rows = new Rows(kind, tbody, kind.namespaced && !namespace);
    rows.columns = list.columnDefinitions ?? [];
    rows.words = quick.value.toLowerCase();
    const shown = rows.shown();
    replace(head, rows.withNamespace && h('th', { scope: 'col' }, 'Namespace'), !shown.some((c) => c.format === 'name' || c.name === 'Name') && h('th', { scope: 'col' }, 'Name'),
      shown.map((column) => h('th', { scope: 'col', class: ['integer', 'number'].includes(column.type) && 'number', title: column.description }, column.name)));
    for (const row of list.rows ?? []) rows.put(row);
    const rest = list.metadata.continue;
    let remaining = list.metadata.remainingItemCount;
    const total = h('p', { role: 'status' });
    const tell = () => {
      const known = rows.all.length + (before.length ? before.length * PAGE : 0);
      total.textContent = rest ? `${number(known)} read${remaining ? `, ${number(remaining)} more` : ', more follow'}` : count(known, 'object');
    };
    tell();
    quick.oninput = () => rows.filter(quick.value);
    const id = freshId('list');
    replace(place, h('section', { class: 'panel', 'aria-labelledby': id }, h('header', {}, h('h2', { id }, kind.resource), total),
      h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${kind.kind} objects` }, h('table', {}, h('caption', { class: 'unseen' }, `${kind.kind} objects`), h('thead', {}, head), tbody)),
      (rest || before.length > 0) && h('div', { class: 'pager' },
        h('button', { disabled: !before.length, onclick: () => load(before.slice(0, -1), before[before.length - 1] || undefined).catch(fail) }, 'Previous'),
        h('button', { disabled: !rest, onclick: () => load([...before, token ?? ''], rest).catch(fail) }, 'Next'), `Page ${before.length + 1}`)));
    if (!kind.verbs.includes('watch')) return;
    const last = rows.all[rows.all.length - 1]?.key ?? '';
    const first = rows.all[0]?.key ?? '';
    let pending = [];
    let drawing;
    const flush = () => {
      drawing = undefined;
      for (const { type, object } of pending) {
        for (const row of object.rows ?? []) {
          const key = keyOf(row.object.metadata);
          const isHere = rows.byKey.has(key);
          if (type === 'DELETED') rows.remove(key);
          // What belongs on another page is left to it.
          else if (isHere || ((!rest || key <= last) && (!before.length || key >= first) && rows.all.length < MOST)) rows.put(row, true);
          if (!isHere && type === 'ADDED' && rest && key > last) remaining = remaining === undefined ? undefined : remaining + 1;
        }
      }
      pending = [];
      tell();
    };
    follow(path, {
      query: selectors, accept: TABLE, from: list.metadata.resourceVersion, signal: here, state: setLive, gone: () => load(before, token).catch(fail),
      take: (event) => {
        pending.push(event);
        drawing ??= setTimeout(flush, 150);
      },
    });
  };
  const fail = (error) => {
    if (signal.aborted) return;
    const isOffered = error.status === 403 && kind.namespaced && !namespace;
    replace(place, refusal(error), isOffered && offerNamespace((chosen) => `${address(kind)}?${new URLSearchParams({ namespace: chosen })}`));
  };
  try {
    await load([], undefined);
  } catch (error) {
    if (error.status === 401) throw error;
    fail(error);
  }
}
