// The server's metrics, read every five seconds while something shows them and the page is visible.

import { pause, text } from './api.js';
import { note as warning } from './dom.js';
import { span } from './format.js';

const INTERVAL = 5000;
// Rates are over these many readings: a minute.
const KEPT = 13;
const HISTORY = 120;
const WANTED = /^(apiserver_(request_total|request_duration_seconds_\w+|longrunning_requests|current_inflight_requests|connections|dropped_requests_total|request_panics_total|request_timeouts_total|storage_\w+|watch_cache_\w+|encoded_forms_\w+|response_bytes_in_flight|customresource\w*|flowcontrol_(nominal_limit_seats|current_limit_seats|current_executing_seats|current_executing_requests|current_inqueue_requests|dispatched_requests_total|rejected_requests_total|request_wait_duration_seconds_(sum|count))|resource_objects|encryption_\w+|authorization_\w+_total)|aggregator_\w+|process_\w+|authentication_attempts)\{?/;

const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

// Families by name, each a map of series by the text of their labels.
export function parse(document) {
  const families = new Map();
  for (const line of document.split('\n')) {
    if (!line || line[0] === '#' || !WANTED.test(line)) continue;
    const end = line.lastIndexOf(' ');
    const brace = line.indexOf('{');
    const name = brace > 0 ? line.slice(0, brace) : line.slice(0, end);
    const labels = brace > 0 ? line.slice(brace + 1, line.lastIndexOf('}')) : '';
    if (!families.has(name)) families.set(name, new Map());
    families.get(name).set(labels, Number(line.slice(end + 1)));
  }
  return families;
}

const parsed = new Map();
export function labelsOf(key) {
  let labels = parsed.get(key);
  if (!labels) {
    labels = {};
    for (const [, name, value] of key.matchAll(LABEL)) labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    if (parsed.size > 200_000) parsed.clear();
    parsed.set(key, labels);
  }
  return labels;
}

export class Sample {
  constructor(at, families) {
    this.at = at;
    this.families = families;
  }

  series(name) {
    return this.families.get(name) ?? new Map();
  }

  has(name) {
    return this.families.has(name);
  }

  // The sum of the series whose labels pass; undefined where there is no such family.
  sum(name, passes) {
    const series = this.families.get(name);
    if (!series) return undefined;
    let sum = 0;
    for (const [key, value] of series) if (!passes || passes(labelsOf(key))) sum += value;
    return sum;
  }
}

const readings = [];
const history = [];
let error;
const readers = new Set();
let running;

// The quantile of a histogram from cumulative counts by upper bound.
export function quantile(q, buckets) {
  const bounds = [...buckets].sort((a, b) => a[0] - b[0]);
  const total = bounds.length ? bounds[bounds.length - 1][1] : 0;
  if (!(total > 0)) return undefined;
  let [low, before] = [0, 0];
  for (const [bound, value] of bounds) {
    if (value >= q * total) {
      if (bound === Infinity) return low;
      return low + ((bound - low) * (q * total - before)) / Math.max(value - before, 1e-9);
    }
    [low, before] = [bound, value];
  }
  return low;
}

function note(sample) {
  const last = readings[readings.length - 1];
  if (last) {
    const time = (sample.at - last.at) / 1000;
    const delta = (name, passes) => Math.max(0, (sample.sum(name, passes) ?? 0) - (last.sum(name, passes) ?? 0)) / time;
    history.push({
      at: sample.at,
      requests: delta('apiserver_request_total'),
      errors: delta('apiserver_request_total', (labels) => labels.code >= '500'),
      cpu: delta('process_cpu_seconds_total'),
      memory: sample.sum('process_resident_memory_bytes') ?? 0,
      watches: sample.sum('apiserver_longrunning_requests') ?? 0,
    });
    if (history.length > HISTORY) history.shift();
    // A restarted server counts from nothing.
    if ((sample.sum('process_start_time_seconds') ?? 0) !== (last.sum('process_start_time_seconds') ?? 0)) readings.length = 0;
  }
  readings.push(sample);
  if (readings.length > KEPT) readings.shift();
}

async function read() {
  while (readers.size) {
    if (!document.hidden) {
      try {
        note(new Sample(Date.now(), parse(await text('/metrics', { accept: 'text/plain' }))));
        error = undefined;
      } catch (failure) {
        error = failure;
      }
      tell();
    }
    await pause(INTERVAL);
  }
  running = undefined;
}

function tell() {
  for (const reader of readers) reader(state());
}

function state() {
  const [oldest, newest] = [readings[0], readings[readings.length - 1]];
  return { now: newest, before: newest === oldest ? undefined : oldest, history, error, age: newest && Date.now() - newest.at };
}

// Says how old figures are that are not of now.
export const staleness = ({ age, error: why }) => age > 2 * INTERVAL && warning('warn', `As of ${span(age / 1000)} ago.${why ? ` ${why.message}` : ''}`);

// Calls back with each reading until the signal fires.
export function onMetrics(signal, callback) {
  readers.add(callback);
  signal.addEventListener('abort', () => readers.delete(callback), { once: true });
  if (readings.length) callback(state());
  running ??= read();
}

export function forgetMetrics() {
  readings.length = 0;
  history.length = 0;
  error = undefined;
}
