// What is served: groups, custom resource definitions with their cost, aggregated servers.

import { TABLE, discovery, follow, get } from './api.js';
import { badge, body, h, heading, panel, refusal, replace, table } from './dom.js';
import { bytes, count, number, seconds, since } from './format.js';
import { labelsOf, onMetrics } from './metrics.js';

const LIMIT = 500;
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const SERVICES = '/apis/apiregistration.k8s.io/v1/apiservices';

function groupTable(groups) {
  const rows = groups.map((group) => [
    group.name || 'core', group.versions.map((v) => v.version).join(', '), number(new Set(group.versions.flatMap((v) => v.resources.map((r) => r.resource))).size),
    group.versions.every((v) => v.freshness !== 'Stale') ? badge('current', 'good') : badge('stale', 'warn'),
  ]);
  return panel('Groups', `${count(groups.length, 'group')}, asked in the order aggregator, built in, custom`,
    table('Groups', [{ title: 'Group', head: true }, { title: 'Versions, preferred first' }, { title: 'Resources', number: true }, { title: 'Discovery' }], rows));
}

const condition = (object, type) => object.status?.conditions?.find((c) => c.type === type);

function definitions(list, metrics) {
  const cost = new Map();
  for (const [family, short] of [['objects', 'objects'], ['stored_bytes', 'stored'], ['cache_bytes', 'cache'], ['schema_bytes', 'schema'], ['watchers', 'watchers'],
    ['rule_evaluation_seconds_total', 'rules'], ['conversion_calls_total', 'conversions'], ['conversion_failures_total', 'failures']]) {
    for (const [key, value] of metrics?.series(`apiserver_customresource_${family}`) ?? []) {
      const { crd } = labelsOf(key);
      if (!cost.has(crd)) cost.set(crd, {});
      cost.get(crd)[short] = value;
    }
  }
  const rows = list.items.map((crd) => {
    const of = cost.get(crd.metadata.name);
    const preferred = crd.spec.versions?.find((v) => v.served && v.storage) ?? crd.spec.versions?.find((v) => v.served);
    const established = condition(crd, 'Established')?.status === 'True';
    return [preferred ? h('a', { href: `#/objects/${encodeURIComponent(crd.spec.group)}/${encodeURIComponent(preferred.name)}/${encodeURIComponent(crd.spec.names?.plural ?? '')}` }, crd.metadata.name) : crd.metadata.name,
      (crd.spec.versions ?? []).filter((v) => v.served).map((v) => v.name).join(', '), established ? badge('established', 'good') : badge(condition(crd, 'NamesAccepted')?.reason ?? 'not established', 'warn'),
      of ? number(of.objects) : '–', of ? bytes(of.stored) : '–', of ? bytes(of.cache) : '–', of ? bytes(of.schema) : '–', of ? number(of.watchers) : '–',
      of ? seconds(of.rules ?? 0) : '–', of?.conversions ? `${number(of.conversions)}${of.failures ? `, ${number(of.failures)} failed` : ''}` : '–'];
  });
  return table('Custom resource definitions', [{ title: 'Definition', head: true }, { title: 'Versions' }, { title: 'State' }, { title: 'Objects', number: true }, { title: 'Stored', number: true },
    { title: 'Cache', number: true }, { title: 'Schema', number: true }, { title: 'Watches', number: true }, { title: 'Rules', number: true }, { title: 'Conversions', number: true }], rows, 'No custom resource definitions.');
}

function services(list, metrics) {
  const latency = new Map();
  for (const part of ['sum', 'count']) {
    for (const [key, value] of metrics?.series(`aggregator_proxy_request_duration_seconds_${part}`) ?? []) {
      const { name } = labelsOf(key);
      if (!latency.has(name)) latency.set(name, {});
      latency.get(name)[part] = value;
    }
  }
  const remote = list.items.filter((service) => service.spec.service);
  const rows = remote.map((service) => {
    const available = condition(service, 'Available');
    const spent = latency.get(service.metadata.name);
    return [service.metadata.name, `${service.spec.service.namespace}/${service.spec.service.name}`,
      available?.status === 'True' ? badge('available', 'good') : badge(available?.reason ?? 'unknown', 'bad'),
      spent?.count ? seconds(spent.sum / spent.count) : '–', spent ? number(spent.count) : '–', since(available?.lastTransitionTime), available?.message ?? ''];
  });
  return panel('Aggregated servers', `${count(remote.length, 'APIService')} of other servers, ${number(list.items.length - remote.length)} local`,
    table('Aggregated servers', [{ title: 'APIService', head: true }, { title: 'Service' }, { title: 'Condition' }, { title: 'Mean latency', number: true }, { title: 'Requests', number: true },
      { title: 'For' }, { title: 'Message', wrap: true }], rows, 'All groups are served here.'));
}

export async function showApis(main, signal, setLive) {
  const [custom, remote, groups] = [h('div'), h('div'), h('div')];
  main.append(heading('APIs', { sub: 'A request is answered by the aggregator, else by the built-in groups, else by custom resources.' }), remote, custom, groups);
  let metrics;
  const lists = {};
  const draw = () => {
    if (lists.custom?.items) {
      const more = lists.custom.metadata.remainingItemCount;
      replace(custom, panel('Custom resource definitions', `cost of those in use${more ? `; ${number(more)} more are not shown` : ''}`, definitions(lists.custom, metrics)));
    } else if (lists.custom) replace(custom, panel('Custom resource definitions', null, body(refusal(lists.custom))));
    if (lists.remote?.items) replace(remote, services(lists.remote, metrics));
    else if (lists.remote) replace(remote, panel('Aggregated servers', null, body(refusal(lists.remote))));
  };
  // Definitions are large: their tables say that something changed, and then the list is read again.
  const load = async (key, path) => {
    lists[key] = await get(path, { query: { limit: LIMIT, pretty: 'false' }, signal }).catch((error) => error);
    if (signal.aborted) return;
    draw();
    if (!lists[key].items) return;
    let waiting;
    const again = () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        const list = await get(path, { query: { limit: LIMIT, pretty: 'false' }, signal }).catch(() => undefined);
        if (!list || signal.aborted) return;
        lists[key] = list;
        draw();
      }, 500);
    };
    follow(path, { accept: TABLE, from: lists[key].metadata.resourceVersion, signal, state: setLive, take: again, gone: () => load(key, path) });
  };
  onMetrics(signal, (state) => { metrics = state.now; draw(); });
  await Promise.all([load('custom', CRDS), load('remote', SERVICES),
    discovery().then((found) => replace(groups, groupTable(found)), (error) => replace(groups, refusal(error)))]);
}
