// Events of the cluster as they come, newest first.

import { follow, get } from './api.js';
import { badge, body, empty, h, heading, note, panel, refusal, replace } from './dom.js';
import { count, number, since } from './format.js';
import { keepNamespace, offerNamespace } from './namespace.js';
import { every } from './status.js';

const PAGE = 500;
// Events that are read and held. A server lists them by name, so that the newest are known only when all are read.
const MOST = 5000;
const SHOWN = 300;

export const timeOf = (event) => new Date(event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp).getTime() || 0;

const pathOf = (namespace) => `/api/v1${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ''}/events`;

// Up to MOST events: `isPart` where there are more.
export async function readEvents(namespace, query, signal) {
  const items = [];
  let [token, version] = ['', ''];
  do {
    const list = await get(pathOf(namespace), { query: { ...query, limit: PAGE, continue: token, pretty: 'false' }, signal });
    for (const item of list.items) items.push(item);
    // All pages are of one version.
    version ||= list.metadata.resourceVersion;
    token = list.metadata.continue;
  } while (token && items.length < MOST);
  return { items, version, isPart: Boolean(token) };
}

export const unread = ({ isPart }) => isPart && body(note('warn', `There are more than ${number(MOST)}, of which so many were read, in the order of their names: newer ones may be missing.`));

export async function showEvents(main, signal, setLive, query) {
  const namespace = query.get('namespace') ?? '';
  keepNamespace(namespace);
  let filter = '';
  let onlyWarnings = false;
  let list = {};
  const events = new Map();
  const place = h('div');
  const matches = (event) => (!onlyWarnings || event.type !== 'Normal')
    && (!filter || [event.reason, event.message, event.metadata.namespace, event.involvedObject?.kind, event.involvedObject?.name].some((text) => text?.toLowerCase().includes(filter)));
  const draw = () => {
    const all = [...events.values()].filter(matches).sort((a, b) => timeOf(b) - timeOf(a));
    const rows = all.slice(0, SHOWN).map((event) => h('tr', { class: event.fresh && 'fresh' },
      h('td', {}, since(timeOf(event))), h('td', {}, badge(event.type ?? '–', event.type === 'Warning' ? 'warn' : '')), h('th', { scope: 'row' }, event.reason ?? '–'),
      h('td', {}, `${event.involvedObject?.kind ?? ''} ${event.involvedObject?.name ?? ''}`), h('td', {}, event.metadata.namespace),
      h('td', { class: 'wrap' }, event.message ?? ''), h('td', { class: 'number' }, number(event.series?.count ?? event.count ?? 1))));
    for (const event of events.values()) event.fresh = false;
    replace(place, panel('Events', `${count(all.length, 'event')}${all.length > SHOWN ? `, the newest ${SHOWN} are shown` : ''}`, unread(list),
      rows.length === 0 ? body(empty('No events.')) : h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Events, table' }, h('table', {}, h('caption', { class: 'unseen' }, 'Events'),
        h('thead', {}, h('tr', {}, ['Age', 'Type', 'Reason', 'Object', 'Namespace', 'Message'].map((title) => h('th', { scope: 'col' }, title)), h('th', { scope: 'col', class: 'number' }, 'Count'))),
        h('tbody', {}, rows)))));
  };
  let drawing;
  const soon = () => {
    drawing ??= setTimeout(() => { drawing = undefined; if (!signal.aborted) draw(); }, 200);
  };
  main.append(heading('Events'), h('div', { class: 'filters' },
    h('label', {}, 'Filter', h('input', { type: 'search', 'data-key': 'filter', placeholder: 'reason, object, message', oninput: (event) => { filter = event.target.value.toLowerCase(); soon(); } })),
    h('label', {}, 'Namespace', h('input', { value: namespace, placeholder: 'all', autocapitalize: 'off', spellcheck: 'false', onchange: (event) => {
      const chosen = event.target.value.trim();
      location.hash = `#/events${chosen ? `?namespace=${encodeURIComponent(chosen)}` : ''}`;
    } })),
    h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (event) => { onlyWarnings = event.target.checked; soon(); } }), 'Warnings only')), place);
  const load = async () => {
    list = await readEvents(namespace, {}, signal);
    events.clear();
    for (const event of list.items) events.set(event.metadata.uid, event);
    draw();
    list.items = [];
    follow(pathOf(namespace), {
      from: list.version, signal, state: setLive, gone: load,
      take: ({ type, object }) => {
        if (type === 'DELETED') events.delete(object.metadata.uid);
        else events.set(object.metadata.uid, { ...object, fresh: true });
        if (events.size > MOST + PAGE) {
          const oldest = [...events.values()].sort((a, b) => timeOf(a) - timeOf(b)).slice(0, events.size - MOST);
          for (const event of oldest) events.delete(event.metadata.uid);
        }
        soon();
      },
    });
  };
  try {
    await load();
  } catch (error) {
    if (signal.aborted || error.status !== 403 || namespace) throw error;
    replace(place, refusal(error), offerNamespace((chosen) => `#/events?namespace=${encodeURIComponent(chosen)}`));
    return;
  }
  every(10_000, signal, draw);
}
