// Health, load, the store and the replicas at a glance.

import { follow, get, text } from './api.js';
import { badge, body, chart, h, heading, panel, refusal, replace, stats, table } from './dom.js';
import { bytes, count, date, number, rate, since, span } from './format.js';
import { onMetrics, staleness } from './metrics.js';
import { busiest } from './requests.js';
import { readEvents, timeOf, unread } from './events.js';
import { every, status } from './status.js';

// The checks of a verbose health answer, which is an error's text when one fails.
async function checks(path) {
  let answer;
  try {
    answer = await text(path, { accept: 'text/plain', query: { verbose: 'true' } });
  } catch (error) {
    if (error.status !== 500) throw error;
    answer = error.message;
  }
  return [...answer.matchAll(/^\[([+-])\](\S+) ?(.*)$/gm)].map(([, sign, name, rest]) => ({ name, ok: sign === '+', rest }));
}

function load(state) {
  const { now, before, history, error } = state;
  if (!now) return error ? refusal(error) : h('p', { class: 'empty' }, 'Reading metrics…');
  const last = history[history.length - 1];
  const values = (key) => history.map((point) => point[key]);
  const requests = before && (now.sum('apiserver_request_total') - before.sum('apiserver_request_total')) / ((now.at - before.at) / 1000);
  return [staleness(state), stats([
    { label: 'Requests per second', value: rate(requests), note: `${number(now.sum('apiserver_current_inflight_requests'))} in flight`, more: chart(values('requests'), 'Requests per second over the last minutes') },
    { label: 'CPU', value: last ? `${Math.round(last.cpu * 100)} %` : '–', note: 'of one core', more: chart(values('cpu'), 'CPU over the last minutes') },
    { label: 'Memory', value: bytes(now.sum('process_resident_memory_bytes')), note: 'resident', more: chart(values('memory'), 'Memory over the last minutes') },
    { label: 'Watches', value: number(now.sum('apiserver_longrunning_requests') ?? 0), note: count(now.sum('apiserver_connections') ?? 0, 'connection'), more: chart(values('watches'), 'Watches over the last minutes') },
  ])];
}

function checkPanel(title, found, open) {
  const failing = found.filter((check) => !check.ok);
  const list = [...failing, ...found.filter((check) => check.ok)];
  return panel(title, failing.length ? count(failing.length, 'check fails', 'checks fail') : `all ${found.length} checks pass`,
    h('details', { open: failing.length > 0 || open }, h('summary', {}, 'Checks'),
      table(title, [{ title: 'Check', head: true }, { title: 'State' }],
        list.map((check) => [check.name, check.ok ? badge('ok', 'good') : badge(check.rest || 'failed', 'bad')]))));
}

const LEASES = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';
const OF_SERVERS = { labelSelector: 'apiserver.kubernetes.io/identity=kube-apiserver' };

// Leases of the servers, kept up to date by a watch.
async function replicas(place, signal, setLive) {
  let list;
  try {
    list = await get(LEASES, { query: { ...OF_SERVERS, limit: 100 }, signal });
  } catch (error) {
    if (signal.aborted) return;
    replace(place, panel('Replicas', null, body(refusal(error))));
    return;
  }
  const leases = new Map(list.items.map((lease) => [lease.metadata.name, lease]));
  const draw = () => {
    const rows = [...leases.values()].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1)).map((lease) => {
      const renewed = new Date(lease.spec?.renewTime).getTime();
      const alive = Date.now() - renewed < (lease.spec?.leaseDurationSeconds ?? 3600) * 1000;
      const host = h('a', { href: `#/objects/coordination.k8s.io/v1/leases/kube-system/${encodeURIComponent(lease.metadata.name)}`, title: lease.metadata.name }, lease.metadata.labels?.['kubernetes.io/hostname'] ?? lease.metadata.name);
      return [host, alive ? badge('holds its lease', 'good') : badge('expired', 'bad'),
        since(lease.metadata.creationTimestamp), `${since(lease.spec?.renewTime)} ago`];
    });
    replace(place, panel('Replicas', count(leases.size, 'server'),
      table('Replicas', [{ title: 'Host', head: true }, { title: 'State' }, { title: 'Age' }, { title: 'Renewed' }], rows, 'No server has a lease.')));
  };
  draw();
  follow(LEASES, {
    query: OF_SERVERS, from: list.metadata.resourceVersion, signal, state: setLive,
    take: ({ type, object }) => {
      if (type === 'DELETED') leases.delete(object.metadata.name);
      else leases.set(object.metadata.name, object);
      draw();
    },
    gone: () => replicas(place, signal, setLive),
  });
  every(30_000, signal, draw);
}

// The newest warnings among the events.
async function warningsOf(place, signal) {
  const draw = async () => {
    const list = await readEvents('', { fieldSelector: 'type=Warning' }, signal).catch((error) => error);
    if (signal.aborted) return;
    const title = 'Warnings';
    if (!list.items) return replace(place, panel(title, null, body(refusal(list))));
    const newest = list.items.sort((a, b) => timeOf(b) - timeOf(a)).slice(0, 6);
    return replace(place, panel(title, h('a', { href: '#/events' }, 'all events'), table(title, [{ title: 'Age' }, { title: 'Reason', head: true }, { title: 'Message', wrap: true }],
      newest.map((event) => [since(timeOf(event)), event.reason, `${event.involvedObject?.name ?? ''}: ${event.message ?? ''}`]), 'No warnings.'), unread(list)));
  };
  await draw();
  every(30_000, signal, draw);
}

export async function showOverview(main, signal, setLive) {
  const [facts, charts, health, servers, busy, warned] = [h('div'), h('div'), h('div'), h('div'), h('div'), h('div')];
  main.append(heading('Overview'), facts, charts, h('div', { class: 'columns' }, h('div', {}, busy, health), h('div', {}, servers, warned)));
  let version;
  const refresh = async () => {
    version ??= await get('/version', { signal }).catch(() => undefined);
    const [ready, live, figures] = await Promise.all([
      checks('/readyz').catch((error) => error), checks('/livez').catch((error) => error), status(signal).catch((error) => error),
    ]);
    if (signal.aborted) return;
    const isReady = Array.isArray(ready) && ready.every((check) => check.ok);
    const isLive = Array.isArray(live) && live.every((check) => check.ok);
    const store = figures.stores?.[0];
    replace(facts, stats([
      { label: 'Health', value: !Array.isArray(ready) ? 'Unknown' : figures.stopping ? 'Stopping' : isReady ? 'Ready' : isLive ? 'Not ready' : 'Not live', note: figures.readySince ? `for ${span(Date.now() / 1000 - figures.readySince)}, since ${date(figures.readySince)}` : undefined },
      { label: 'Version', value: version?.gitVersion?.replace(/\+.*/, '') ?? '–', note: version ? `${version.gitVersion}, ${version.platform}` : undefined },
      store && { label: 'Store', value: store.error ? 'Unreachable' : store.engine, note: store.error ?? [store.sizeBytes && bytes(store.sizeBytes), store.keys && count(store.keys, 'key')].filter(Boolean).join(', ') },
      store && !store.error && { label: 'Revision', value: number(store.revision), note: `readable from ${number(store.oldestRevision)}` },
    ]));
    replace(health, Array.isArray(ready) ? checkPanel('Readiness', ready, health.querySelector('details')?.open) : panel('Readiness', null, body(refusal(ready))));
  };
  await refresh();
  every(10_000, signal, refresh);
  onMetrics(signal, (state) => {
    replace(charts, load(state));
    if (state.now) replace(busy, panel('Busiest', h('a', { href: '#/requests' }, 'all requests'), busiest(state.now, state.before)));
  });
  warningsOf(warned, signal);
  await replicas(servers, signal, setLive);
}
