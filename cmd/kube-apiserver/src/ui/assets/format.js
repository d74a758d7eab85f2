// Figures and times for people.

export function bytes(count) {
  if (count === undefined || count === null || Number.isNaN(count)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) {
    count /= 1024;
    at += 1;
  }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export const number = (value) => (value === undefined || value === null || Number.isNaN(value) ? '–' : Math.round(value).toLocaleString('en'));

export function rate(value) {
  if (value === undefined || Number.isNaN(value)) return '–';
  return value >= 100 ? number(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function seconds(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return '–';
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  return value < 10 ? `${value.toFixed(2)} s` : `${Math.round(value)} s`;
}

export function span(total) {
  const s = Math.max(0, Math.round(total));
  const [d, hr, m] = [Math.floor(s / 86400), Math.floor(s / 3600), Math.floor(s / 60)];
  if (d >= 2) return `${d}d`;
  if (hr >= 2) return `${hr}h${hr < 10 && m % 60 ? `${m % 60}m` : ''}`;
  return m >= 2 ? `${m}m${m < 10 && s % 60 ? `${s % 60}s` : ''}` : `${s}s`;
}

export const since = (when) => (when ? span((Date.now() - new Date(when).getTime()) / 1000) : '–');
export const date = (unix) => `${new Date(unix * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
