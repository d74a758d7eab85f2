// The stores, and the caches in front of them.

import { body, empty, h, heading, panel, refusal, replace, stats, table } from './dom.js';
import { bytes, date, number } from './format.js';
import { labelsOf, onMetrics, staleness } from './metrics.js';
import { every, status } from './status.js';

const ROWS = 100;

function store(found, index, all) {
  const title = all.length > 1 ? `Store ${index + 1}` : 'Store';
  if (found.error) return panel(title, null, body(refusal({ message: found.error })));
  return stats([
    { label: all.length > 1 ? `Engine ${index + 1}` : 'Engine', value: found.engine, note: found.keys !== null && found.keys !== undefined ? `${number(found.keys)} keys` : undefined },
    { label: 'Size', value: bytes(found.sizeBytes ?? undefined), note: found.sizeBytes ? 'on disk' : 'not on disk' },
    { label: 'Revision', value: number(found.revision) },
    { label: 'Compacted', value: number(found.oldestRevision), note: `history of ${number(Math.max(0, found.revision - found.oldestRevision))} revisions` },
  ]);
}

function caches(now) {
  const value = (name, passes) => now.sum(`apiserver_${name}`, passes);
  const scrub = value('storage_last_scrub_timestamp_seconds');
  const history = (value('watch_cache_snapshot_bytes') ?? 0) + (value('watch_cache_event_bytes') ?? 0);
  return [stats([
    { label: 'Past states and events', value: bytes(history), note: `of ${bytes(value('watch_cache_history_limit_bytes'))}; ${number(value('watch_cache_snapshots'))} snapshots` },
    { label: 'Encoded forms', value: bytes(value('encoded_forms_bytes')), note: `of ${bytes(value('encoded_forms_limit_bytes'))}; ${number(value('encoded_forms_dropped_total'))} dropped` },
    { label: 'Cache rebuilds', value: number(value('watch_cache_rebuilds_total')), note: `${number(value('watch_cache_history_evictions_total'))} evictions of history` },
    now.has('apiserver_storage_damaged_records') && { label: 'Damaged records', value: number(value('storage_damaged_records')), note: scrub ? `read through ${date(scrub)}` : 'not read through yet' },
  ])];
}

function objects(now) {
  const rows = [...now.series('apiserver_resource_objects')].map(([key, value]) => [labelsOf(key), value]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  return panel('Objects', 'by resource, counted once a minute', table('Objects by resource', [{ title: 'Resource', head: true }, { title: 'Group' }, { title: 'Objects', number: true }],
    rows.slice(0, ROWS).map(([labels, value]) => [labels.resource, labels.group || '–', number(value)]), 'Not counted yet.'));
}

export async function showStorage(main, signal) {
  const [stores, cache, counts] = [h('div'), h('div'), h('div')];
  main.append(heading('Storage'), stores, cache, counts);
  const draw = async () => {
    const found = await status(signal).catch((error) => error);
    if (signal.aborted) return;
    replace(stores, found.stores ? found.stores.map(store) : refusal(found));
  };
  onMetrics(signal, (state) => {
    const { now, error } = state;
    if (!now) return replace(cache, error ? refusal(error) : empty('Reading metrics…'));
    replace(cache, staleness(state), caches(now));
    return replace(counts, objects(now));
  });
  await draw();
  every(5000, signal, draw);
}
