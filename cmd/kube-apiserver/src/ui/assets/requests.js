// What clients ask, how long it takes, and who waits.

import { badge, body, empty, h, heading, panel, refusal, replace, stats, table } from './dom.js';
import { number, rate, seconds } from './format.js';
import { labelsOf, onMetrics, quantile, staleness } from './metrics.js';

const ROWS = 60;

// Requests by verb and resource: of the last minute, and since the start where the minute has none.
function groups(now, before) {
  const all = new Map();
  const of = (labels) => {
    const resource = [labels.resource || labels.subresource || 'other paths', labels.resource && labels.subresource].filter(Boolean).join('/');
    const key = `${labels.verb} ${resource} ${labels.group}`;
    if (!all.has(key)) all.set(key, { verb: labels.verb, resource, group: labels.group, total: 0, recent: 0, refused: 0, failed: 0, buckets: new Map(), recentBuckets: new Map() });
    return all.get(key);
  };
  const add = (map, bound, value) => map.set(bound, (map.get(bound) ?? 0) + value);
  for (const [key, value] of now.series('apiserver_request_total')) {
    const labels = labelsOf(key);
    const group = of(labels);
    group.total += value;
    if (before) group.recent += Math.max(0, value - (before.series('apiserver_request_total').get(key) ?? 0));
    if (labels.code >= '500') group.failed += value;
    else if (labels.code >= '400') group.refused += value;
  }
  for (const [key, value] of now.series('apiserver_request_duration_seconds_bucket')) {
    const labels = labelsOf(key);
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    const group = of(labels);
    add(group.buckets, bound, value);
    if (before) add(group.recentBuckets, bound, Math.max(0, value - (before.series('apiserver_request_duration_seconds_bucket').get(key) ?? 0)));
  }
  return [...all.values()].filter((group) => group.total > 0);
}

const ORDERS = {
  rate: ['Most frequent', (a, b) => b.recent - a.recent || b.total - a.total],
  slow: ['Slowest', (a, b) => (b.p99 ?? -1) - (a.p99 ?? -1)],
  errors: ['Most errors', (a, b) => b.failed - a.failed || b.refused - a.refused],
};

function requestTable(now, before, order) {
  const time = before ? (now.at - before.at) / 1000 : undefined;
  const found = groups(now, before);
  for (const group of found) {
    const recent = group.recent > 0 && group.recentBuckets.size;
    group.p50 = quantile(0.5, recent ? group.recentBuckets : group.buckets);
    group.p99 = quantile(0.99, recent ? group.recentBuckets : group.buckets);
  }
  found.sort(ORDERS[order][1]);
  return [found, table('Requests by verb and resource', [
    { title: 'Verb', head: true }, { title: 'Resource' }, { title: 'Group' }, { title: 'Per second', number: true }, { title: 'p50', number: true }, { title: 'p99', number: true },
    { title: '4xx', number: true }, { title: '5xx', number: true }, { title: 'Total', number: true },
  ], found.slice(0, ROWS).map((group) => [group.verb, group.resource, group.group || '–', time ? rate(group.recent / time) : '–', seconds(group.p50), seconds(group.p99),
    number(group.refused), group.failed ? badge(number(group.failed), 'bad') : '0', number(group.total)]))];
}

// The most frequent requests of the last minute, for the overview.
export function busiest(now, before) {
  const time = before && (now.at - before.at) / 1000;
  const found = groups(now, before).sort(ORDERS.rate[1]).slice(0, 8);
  return table('Busiest', [{ title: 'Request', head: true }, { title: 'Per second', number: true }, { title: 'p99', number: true }, { title: 'Total', number: true }],
    found.map((group) => [`${group.verb} ${group.resource}`, time ? rate(group.recent / time) : '–', seconds(quantile(0.99, group.recent > 0 ? group.recentBuckets : group.buckets)), number(group.total)]), 'No requests yet.');
}

function levels(now, before) {
  const time = before ? (now.at - before.at) / 1000 : undefined;
  const names = [...now.series('apiserver_flowcontrol_nominal_limit_seats').keys()].map((key) => labelsOf(key).priority_level).sort();
  if (!names.length) return body(empty('Priority and fairness is off.'));
  return table('Priority levels', [
    { title: 'Level', head: true }, { title: 'Seats', number: true }, { title: 'In use' }, { title: 'Waiting', number: true }, { title: 'Per second', number: true },
    { title: 'Mean wait', number: true }, { title: 'Rejected', number: true },
  ], names.map((name) => {
    const is = (labels) => labels.priority_level === name;
    const value = (family) => now.sum(`apiserver_flowcontrol_${family}`, is) ?? 0;
    const delta = (family) => (before ? value(family) - (before.sum(`apiserver_flowcontrol_${family}`, is) ?? 0) : 0);
    const [seats, used] = [value('current_limit_seats'), value('current_executing_seats')];
    const waited = value('request_wait_duration_seconds_count');
    const rejected = value('rejected_requests_total');
    return [name, name === 'exempt' ? 'no limit' : number(seats),
      h('span', {}, number(used), seats > 0 && h('progress', { class: 'meter', max: String(seats), value: String(Math.min(used, seats)), 'aria-label': `${name}: seats in use` })),
      number(value('current_inqueue_requests')), time ? rate(delta('dispatched_requests_total') / time) : '–',
      waited ? seconds(value('request_wait_duration_seconds_sum') / waited) : '–', rejected ? badge(number(rejected), 'warn') : '0'];
  }));
}

function watchers(now) {
  const found = new Map();
  for (const [key, value] of now.series('apiserver_longrunning_requests')) {
    const labels = labelsOf(key);
    const name = [labels.verb, [labels.resource, labels.subresource].filter(Boolean).join('/'), labels.group || '–'].join('\n');
    found.set(name, (found.get(name) ?? 0) + value);
  }
  const rows = [...found].filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, ROWS);
  return table('Watches and streams', [{ title: 'Resource', head: true }, { title: 'Group' }, { title: 'Kind' }, { title: 'Open', number: true }],
    rows.map(([name, value]) => {
      const [verb, resource, group] = name.split('\n');
      return [resource || 'other paths', group, verb, number(value)];
    }), 'Nobody watches.');
}

export async function showRequests(main, signal) {
  let order = 'rate';
  let last = {};
  const [totals, requests, fair, watching] = [h('div'), h('div'), h('div'), h('div')];
  const draw = () => {
    const { now, before, error } = last;
    if (!now) return replace(totals, error ? refusal(error) : empty('Reading metrics…'));
    const [found, view] = requestTable(now, before, order);
    const time = before && (now.at - before.at) / 1000;
    const recent = found.reduce((sum, group) => sum + group.recent, 0);
    replace(totals, staleness(last), stats([
      { label: 'Requests per second', value: time ? rate(recent / time) : '–', note: 'over the last minute' },
      { label: 'In flight', value: number(now.sum('apiserver_current_inflight_requests')), note: `${number(now.sum('apiserver_current_inflight_requests', (l) => l.request_kind === 'mutating'))} of them write` },
      { label: 'Failed', value: number(found.reduce((sum, group) => sum + group.failed, 0)), note: `${number(now.sum('apiserver_request_timeouts_total') ?? 0)} timed out, ${number(now.sum('apiserver_dropped_requests_total') ?? 0)} shed` },
      { label: 'Authentication', value: number(now.sum('authentication_attempts', (l) => l.result === 'success') ?? 0), note: `${number(now.sum('authentication_attempts', (l) => l.result !== 'success') ?? 0)} refused` },
    ]));
    replace(requests, panel('Requests', 'by verb and resource; quantiles of the last minute, where it had any', view));
    replace(fair, panel('Priority levels', null, levels(now, before)));
    return replace(watching, panel('Watches and streams', null, watchers(now)));
  };
  const choose = h('select', { 'data-key': 'filter', onchange: (event) => { order = event.target.value; draw(); } },
    Object.entries(ORDERS).map(([key, [title]]) => h('option', { value: key }, title)));
  main.append(heading('Requests', { sub: 'Since the start of this server; other replicas count their own.' }), totals,
    h('div', { class: 'filters' }, h('label', {}, 'Order', choose)), requests, fair, watching);
  onMetrics(signal, (state) => { last = state; draw(); });
}
