// Events of the cluster as they come, newest first.

import { follow, get } from './api.js';
import { badge, body, empty, h, heading, panel, replace } from './dom.js';
import { count, number, since } from './format.js';
import { every } from './status.js';

const LIMIT = 500;
const SHOWN = 300;
const PATH = '/api/v1/events';

export const timeOf = (event) => new Date(event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp).getTime() || 0;

export async function showEvents(main, signal, setLive) {
  let filter = '';
  let onlyWarnings = false;
  let rest = 0;
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
    replace(place, panel('Events', `${count(all.length, 'event')}${all.length > SHOWN ? `, the newest ${SHOWN} are shown` : ''}${rest ? `; ${number(rest)} more were not read` : ''}`,
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
    h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (event) => { onlyWarnings = event.target.checked; soon(); } }), 'Warnings only')), place);
  const load = async () => {
    const list = await get(PATH, { query: { limit: LIMIT, pretty: 'false' }, signal });
    events.clear();
    rest = list.metadata.remainingItemCount ?? 0;
    for (const event of list.items) events.set(event.metadata.uid, event);
    draw();
    follow(PATH, {
      from: list.metadata.resourceVersion, signal, state: setLive, gone: load,
      take: ({ type, object }) => {
        if (type === 'DELETED') events.delete(object.metadata.uid);
        else events.set(object.metadata.uid, { ...object, fresh: true });
        if (events.size > 2 * LIMIT) {
          const oldest = [...events.values()].sort((a, b) => timeOf(a) - timeOf(b)).slice(0, events.size - LIMIT);
          for (const event of oldest) events.delete(event.metadata.uid);
        }
        soon();
      },
    });
  };
  await load();
  every(10_000, signal, draw);
}
